"""Curves, trends and differences as SVG, drawn on the server as `charts.py` draws.

Each has its values in words too; pages show them as a table as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite, log10
from typing import Literal

from markupsafe import Markup

from assay.stats import find_share, format_number

from .charts import choose_gate_class, draw_element

_WIDTH, _HEIGHT, _MARGIN = 400, 50, 10
_TREND_WIDTH, _TREND_HEIGHT, _TREND_MARGIN = 120, 18, 5
_CURVE_LEFT, _CURVE_RIGHT, _CURVE_TOP, _CURVE_BOTTOM = 46, 14, 12, 22
_MAX_X_LABELS = 8


@dataclass(frozen=True)
class CurvePoint:
    """One point of a curve. Unknown values leave a gap."""

    value: float | None
    low: float | None = None
    high: float | None = None
    name: str = ""
    """Below the axis, where there is room."""

    title: str = ""
    """Shown when the pointer rests on the point, and read out for it."""

    link: str | None = None
    mark: Literal["better", "worse"] | None = None
    """A significant change against the point before."""


def draw_difference(
    mean: float | None,
    low: float | None,
    high: float | None,
    *,
    reach: float | None = None,
    low_is_good: bool = False,
) -> Markup:
    """Draw a difference as a dot on its interval, around 0; empty if unknown.

    With `reach`, the largest difference of several pictures, it is drawn for the cell of a table.
    """
    if mean is None:
        return Markup("")
    ends = [abs(value) for value in (mean, low, high, reach) if value is not None]
    in_table, reach = reach is not None, max(*ends, 1e-9) * 1.15

    def find_x(value: float) -> float:
        span = _WIDTH - 2 * _MARGIN
        return _MARGIN + find_share(value, (-reach, reach)) * span

    y, parts = 18, []
    parts.append(
        draw_element("line", class_="axis", x1=find_x(-reach), y1=y, x2=find_x(reach), y2=y)
    )
    parts.append(draw_element("line", class_="zero", x1=find_x(0), y1=5, x2=find_x(0), y2=31))
    if low is not None and high is not None:
        parts.append(
            draw_element("line", class_="band", x1=find_x(low), y1=y, x2=find_x(high), y2=y)
        )
    parts.append(draw_element("circle", class_="dot", cx=find_x(mean), cy=y, r=6))
    left, right = ("better", "worse") if low_is_good else ("worse", "better")
    texts = ((-reach, "start", left), (0.0, "middle", "0"), (reach, "end", right))
    for value, anchor, text in () if in_table else texts:
        parts.append(draw_element("text", text, x=find_x(value), y=46, text_anchor=anchor))
    described = f"difference {format_number(mean, signed=True)}"
    if low is not None and high is not None:
        ends_text = f"{format_number(low, signed=True)} to {format_number(high, signed=True)}"
        described += f", interval {ends_text}"
    return draw_element(
        "svg",
        *parts,
        class_="interval",
        viewBox=f"0 0 {_WIDTH} {36 if in_table else _HEIGHT}",
        role="img",
        aria_label=described,
    )


def draw_curve(
    points: Sequence[CurvePoint],
    *,
    label: str,
    threshold: float | None = None,
    low_is_good: bool = False,
    scale: tuple[float, float] | None = None,
    size: tuple[int, int] = (720, 200),
) -> Markup:
    """Draw values in order with their intervals as a band; empty without any known value.

    `scale` is the range to show at least; the values may widen it.
    """
    known = [
        value
        for point in points
        for value in (point.value, point.low, point.high)
        if value is not None and isfinite(value)
    ]
    if not known:
        return Markup("")
    ticks = _choose_ticks([*known, *(scale or ()), *([] if threshold is None else [threshold])])
    axes = _CurveAxes(len(points), ticks, *size)
    parts = [*axes.draw_grid(), *_draw_bands(points, axes), *_draw_lines(points, axes)]
    if threshold is not None:
        y = axes.find_y(threshold)
        ends = {"x1": axes.left, "x2": axes.right, "y1": y, "y2": y}
        last = next((each.value for each in reversed(points) if each.value is not None), None)
        state = "gate"
        if last is not None:
            state = choose_gate_class(last, threshold, low_is_good=low_is_good)
        parts.append(draw_element("line", class_=state, **ends))
        text = f"threshold {format_number(threshold)}"
        # Above its line, or below it where the chart ends.
        above = y - 5 if y > _CURVE_TOP + 14 else y + 13
        parts.append(
            draw_element("text", text, class_="gate-name", x=axes.right, y=above, text_anchor="end")
        )
    parts.extend(_draw_points(points, axes))
    parts.extend(_draw_names(points, axes))
    return draw_element(
        "svg",
        draw_element("title", label),
        *parts,
        class_="curve",
        viewBox=f"0 0 {size[0]} {size[1]}",
        role="group" if any(point.link for point in points) else "img",
        aria_label=label,
    )


def draw_share(count: int, total: int) -> Markup:
    """Draw a count as a bar of the total, as wide as its place."""
    share = count / total if total else 0.0
    return draw_element(
        "svg",
        draw_element("rect", class_="bin", x=0, y=0, width=share * 100.0, height=3, rx=1),
        class_="share",
        viewBox="0 0 100 3",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def draw_trend(values: Sequence[float | None]) -> Markup:
    """Draw values in order, small enough for the cell of a table; empty below two."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return Markup("")
    low, high = min(known), max(known)
    span = _TREND_WIDTH - 2 * _TREND_MARGIN
    places = [
        (
            _TREND_MARGIN + index * span / (len(known) - 1),
            2 + (_TREND_HEIGHT - 4) * (1 - find_share(value, (low, high))),
        )
        for index, value in enumerate(known)
    ]
    x, y = places[-1]
    return draw_element(
        "svg",
        draw_element("polyline", class_="line", points=_join_points(places)),
        draw_element("circle", class_="dot", cx=x, cy=y, r=3.5),
        class_="spark",
        viewBox=f"0 0 {_TREND_WIDTH} {_TREND_HEIGHT}",
        role="img",
        aria_label=f"from {format_number(known[0])} to {format_number(known[-1])}",
    )


@dataclass(frozen=True)
class _CurveAxes:
    count: int
    ticks: Sequence[float]
    width: int
    height: int

    @property
    def left(self) -> float:
        return _CURVE_LEFT

    @property
    def right(self) -> float:
        return self.width - _CURVE_RIGHT

    def find_x(self, index: int) -> float:
        if self.count == 1:
            return (self.left + self.right) / 2
        # Half a step beside the first and the last point, so that no band is cut.
        inset = min(26.0, (self.right - self.left) / self.count / 2)
        span = self.right - self.left - 2 * inset
        return self.left + inset + index * span / (self.count - 1)

    def find_y(self, value: float) -> float:
        room = self.height - _CURVE_TOP - _CURVE_BOTTOM
        return _CURVE_TOP + room * (1 - find_share(value, (self.ticks[0], self.ticks[-1])))

    def draw_grid(self) -> list[Markup]:
        parts = []
        for value in self.ticks:
            y = self.find_y(value)
            parts.append(
                draw_element("line", class_="grid", x1=self.left, y1=y, x2=self.right, y2=y)
            )
            parts.append(
                draw_element("text", f"{value:.4g}", x=self.left - 7, y=y + 4, text_anchor="end")
            )
        return parts


def _choose_ticks(values: Sequence[float]) -> list[float]:
    """Return round numbers around all values, in equal steps."""
    low, high = min(values), max(values)
    if high - low < 1e-12:
        reach = abs(high) * 0.1 or 1.0
        low, high = low - reach, high + reach
    rough = (high - low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(power * each for each in (1, 2, 2.5, 5, 10) if power * each >= rough * 0.999)
    # A hair inside, so that rounding adds no step.
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [step * each for each in range(first, last + 1)]


def _split_at_gaps(points: Sequence[CurvePoint], *, band: bool) -> list[list[int]]:
    """Return the stretches of adjacent points with a value, or with an interval."""
    stretches: list[list[int]] = [[]]
    for index, point in enumerate(points):
        known = (point.low is not None and point.high is not None) if band else point.value
        if known is None or known is False:
            stretches.append([])
        else:
            stretches[-1].append(index)
    return [stretch for stretch in stretches if stretch]


def _draw_bands(points: Sequence[CurvePoint], axes: _CurveAxes) -> list[Markup]:
    parts = []
    for stretch in _split_at_gaps(points, band=True):
        upper = [(axes.find_x(i), axes.find_y(points[i].high or 0.0)) for i in stretch]
        lower = [(axes.find_x(i), axes.find_y(points[i].low or 0.0)) for i in reversed(stretch)]
        if len(stretch) > 1:
            parts.append(draw_element("polygon", class_="area", points=_join_points(upper + lower)))
        else:
            (x, top), (_, bottom) = upper[0], lower[0]
            parts.append(draw_element("line", class_="band", x1=x, y1=top, x2=x, y2=bottom))
    return parts


def _draw_lines(points: Sequence[CurvePoint], axes: _CurveAxes) -> list[Markup]:
    return [
        draw_element(
            "polyline",
            class_="line",
            points=_join_points(
                [(axes.find_x(i), axes.find_y(points[i].value or 0.0)) for i in stretch]
            ),
        )
        for stretch in _split_at_gaps(points, band=False)
        if len(stretch) > 1
    ]


def _join_points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


def _draw_points(points: Sequence[CurvePoint], axes: _CurveAxes) -> list[Markup]:
    parts = []
    # Hundreds of dots would hide the line; those that mean something stay.
    dense = len(points) > 80
    for index, point in enumerate(points):
        if point.value is None or (dense and point.mark is None and point.link is None):
            continue
        x, y = axes.find_x(index), axes.find_y(point.value)
        inner = [draw_element("title", point.title)] if point.title else []
        dot = draw_element("circle", *inner, class_="dot", cx=x, cy=y, r=3 if dense else 4.5)
        if point.mark is not None:
            # A shape, not only a colour: up for better, down for worse.
            sign = -1 if point.mark == "better" else 1
            tip, base = y + sign * 21, y + sign * 12
            places = _join_points([(x, tip), (x - 6, base), (x + 6, base)])
            mark = draw_element("polygon", class_=f"mark {point.mark}", points=places)
            dot = Markup("").join((dot, mark))
        if point.link is not None:
            area = draw_element("circle", *inner, class_="hit", cx=x, cy=y, r=13)
            dot = draw_element("a", area, dot, href=point.link, aria_label=point.title)
        parts.append(dot)
    return parts


def _draw_names(points: Sequence[CurvePoint], axes: _CurveAxes) -> list[Markup]:
    named = [index for index, point in enumerate(points) if point.name]
    every = -(-len(named) // _MAX_X_LABELS) or 1
    return [
        draw_element(
            "text",
            points[index].name,
            x=axes.find_x(index),
            y=axes.height - 6,
            text_anchor="middle",
        )
        for index in named[::every]
    ]
