"""The reward curve as an SVG picture, without a plotting package."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10
from statistics import fmean

from .step_statistics import StepMetrics

_SVG_WIDTH, _SVG_HEIGHT = 720, 400
# Of the rewards, below which the scale would only show rounding.
_SMALLEST_SPREAD = 1e-9
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 24, 44, 48
_STYLE = (
    "text{font:13px sans-serif;fill:#333}.title{font-size:15px;font-weight:600}"
    ".grid{stroke:#ddd}.band{fill:#4477aa;opacity:.15}.point{fill:#4477aa;opacity:.45}"
    ".line{fill:none;stroke:#224466;stroke-width:2}"
)


def render_reward_curve(
    steps: Sequence[StepMetrics], *, title: str = "reward by step", window: int | None = None
) -> str:
    """Return an SVG of the mean reward by step, its interval, and a mean over `window` steps.

    Steps without a judged rollout are omitted and counted in a note.
    """
    shown = [(each, each.reward) for each in steps if each.reward is not None]
    window = window or max(1, len(shown) // 20)
    parts = [f'<text class="title" x="{_LEFT}" y="26">{escape(title)}</text>']
    if shown:
        parts += _Plot.of([each for each, _ in shown]).draw(shown, window)
    if left_out := len(steps) - len(shown):
        note = f"{left_out} steps without a judged rollout are not shown"
        parts.append(f'<text x="{_LEFT}" y="{_SVG_HEIGHT - 4}">{note}</text>')
    size = f'viewBox="0 0 {_SVG_WIDTH} {_SVG_HEIGHT}" width="{_SVG_WIDTH}" height="{_SVG_HEIGHT}"'
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">\n<style>{_STYLE}</style>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{body}\n</svg>\n'
    )


@dataclass(frozen=True)
class _Plot:
    first: int
    last: int
    low: float
    high: float

    @classmethod
    def of(cls, steps: Sequence[StepMetrics]) -> "_Plot":
        known = [
            value
            for each in steps
            for value in (each.reward, each.reward_low, each.reward_high)
            if value is not None
        ]
        low, high = min(known), max(known)
        # A fixed scale for the usual range of rewards makes curves comparable.
        if low >= 0 and high <= 1:
            low, high = 0.0, 1.0
        elif high - low <= _SMALLEST_SPREAD * max(abs(low), abs(high)):
            # Relative to large rewards: 0.5 added to 1e30 changes nothing.
            margin = max(0.5, _SMALLEST_SPREAD * max(abs(low), abs(high)))
            low, high = low - margin, high + margin
        return cls(steps[0].step, max(steps[-1].step, steps[0].step + 1), low, high)

    def x(self, step: float) -> float:
        share = (step - self.first) / (self.last - self.first)
        return round(_LEFT + share * (_SVG_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, reward: float) -> float:
        share = (reward - self.low) / (self.high - self.low)
        return round(_SVG_HEIGHT - _BOTTOM - share * (_SVG_HEIGHT - _TOP - _BOTTOM), 1)

    def draw(self, shown: Sequence[tuple[StepMetrics, float]], window: int) -> list[str]:
        points = [(self.x(each.step), self.y(reward)) for each, reward in shown]
        upper, lower = [], []
        for each, _ in shown:
            if each.reward_low is not None and each.reward_high is not None:
                upper.append(f"{self.x(each.step)},{self.y(each.reward_high)}")
                lower.append(f"{self.x(each.step)},{self.y(each.reward_low)}")
        band = [f'<polygon class="band" points="{" ".join(upper + lower[::-1])}"/>'] * bool(upper)
        rewards = [reward for _, reward in shown]
        means = (fmean(rewards[max(0, end - window) : end]) for end in range(1, len(rewards) + 1))
        line = " ".join(f"{x},{self.y(mean)}" for (x, _), mean in zip(points, means, strict=True))
        return [
            *self._draw_axes(),
            *band,
            *(f'<circle class="point" cx="{x}" cy="{y}" r="2.5"/>' for x, y in points),
            f'<polyline class="line" points="{line}"/>',
        ]

    def _draw_axes(self) -> list[str]:
        right, bottom = _SVG_WIDTH - _RIGHT, _SVG_HEIGHT - _BOTTOM
        lines = []
        for value in _compute_ticks(self.low, self.high):
            y = self.y(value)
            lines.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{y}" y2="{y}"/>')
            lines.append(f'<text x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{value:g}</text>')
        for value in _compute_ticks(self.first, self.last):
            place = f'x="{self.x(value)}" y="{bottom + 20}" text-anchor="middle"'
            lines.append(f"<text {place}>{value:g}</text>")
        return [*lines, f'<text x="{right}" y="{_SVG_HEIGHT - 10}" text-anchor="end">step</text>']


def _compute_ticks(low: float, high: float) -> list[float]:
    # Four to ten round values; the small offsets absorb rounding at both ends.
    rough = (high - low) / 5
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    first = floor(low / step + 1 - 1e-9)
    count = floor((high - first * step) / step + 1e-9)
    return [round((first + number) * step, 10) for number in range(count + 1)]
