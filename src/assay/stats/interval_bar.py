"""Intervals drawn over the range of scores: as a line of text, and as SVG for notebooks."""

from .number_format import format_number
from .report_sections import format_interval
from .statistics import Bounds, Interval
from .summary import RunSummary

_SVG_WIDTH, _SVG_HEIGHT = 320, 26
# Room for the dot of a mean at either end.
_SVG_MARGIN = 6
# Nearer to an end, a label would be written over that of the end.
_LABEL_SHARE = 0.15


def find_score_range(summary: RunSummary) -> Bounds:
    """Return the range to draw scores on: the bounds of the run, 0..1, or the scores' extremes."""
    if summary.bounds is not None:
        return summary.bounds
    distribution = summary.score.distribution
    if distribution is None or distribution.bins is not None:
        return (0.0, 1.0)
    interval = summary.score.interval
    known = [distribution.lowest, distribution.highest, interval.low, interval.high]
    numbers = [number for number in known if number is not None]
    return min(numbers), max(numbers)


def draw_text_bar(
    interval: Interval,
    scale: Bounds,
    *,
    threshold: float | None = None,
    columns: int = 50,
    ascii_only: bool = False,
) -> str:
    """Draw the interval between the ends of `scale`, such as `0 ───[━━●━━]──┃─ 1`.

    A threshold is drawn if it is within the scale. Returns "" without a mean.
    """
    if interval.mean is None:
        return ""
    line, inside, dot, mark = "-=o|" if ascii_only else "─━●┃"

    def find_column(value: float) -> int:
        return round(find_share(value, scale) * (columns - 1))

    cells = [line] * columns
    if interval.low is not None and interval.high is not None:
        first, last = find_column(interval.low), find_column(interval.high)
        cells[first : last + 1] = inside * (last + 1 - first)
        cells[first], cells[last] = "[", "]"
    is_marked = threshold is not None and scale[0] <= threshold <= scale[1]
    if threshold is not None and is_marked:
        cells[find_column(threshold)] = mark
    cells[find_column(interval.mean)] = dot
    ends = (f"{end:g}" for end in scale)
    words = f"  {mark} threshold {format_number(threshold)}" if is_marked else ""
    return f"{next(ends)} {''.join(cells)} {next(ends)}{words}"


def draw_svg_bar(interval: Interval, scale: Bounds, *, threshold: float | None = None) -> str:
    """Draw the interval between the ends of `scale` as SVG. Returns "" without a mean."""
    if interval.mean is None:
        return ""

    def find_x(value: float) -> str:
        return f"{_SVG_MARGIN + find_share(value, scale) * (_SVG_WIDTH - 2 * _SVG_MARGIN):.1f}"

    def draw_line(low: float, high: float, colour: str, width: int) -> str:
        ends = f'x1="{find_x(low)}" x2="{find_x(high)}" y1="8" y2="8"'
        return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'

    def write(value: float, anchor: str) -> str:
        style = f'y="24" font-size="10" fill="gray" text-anchor="{anchor}"'
        return f'<text x="{find_x(value)}" {style}>{value:.3g}</text>'

    parts = [draw_line(*scale, "silver", 2)]
    if interval.low is not None and interval.high is not None:
        parts.append(draw_line(interval.low, interval.high, "steelblue", 6))
    parts.append(f'<circle cx="{find_x(interval.mean)}" cy="8" r="5" fill="navy"/>')
    if threshold is not None and scale[0] <= threshold <= scale[1]:
        at = find_x(threshold)
        parts.append(f'<line x1="{at}" x2="{at}" y1="0" y2="16" stroke="crimson"/>')
        if _LABEL_SHARE < find_share(threshold, scale) < 1 - _LABEL_SHARE:
            parts.append(write(threshold, "middle"))
    parts += [write(scale[0], "start"), write(scale[1], "end")]
    title = f"<title>{format_interval(interval)}</title>"
    size = f'width="{_SVG_WIDTH}" height="{_SVG_HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{title}{"".join(parts)}</svg>'


def find_share(value: float, scale: Bounds) -> float:
    """Return the position of a value on a scale, from 0 at its low end to 1 at its high end."""
    low, high = scale
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
