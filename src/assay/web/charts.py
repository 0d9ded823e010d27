"""Charts as SVG, drawn on the server: made of numbers and escaped text only.

Colours and strokes are classes of `view.css`: the pages allow no inline style.
"""

from collections.abc import Sequence

from markupsafe import Markup, escape

from assay.stats import find_share, format_number, format_plural
from assay.types import reaches_threshold

_INTERVAL_WIDTH, _INTERVAL_HEIGHT, _INTERVAL_MARGIN = 400, 50, 10
_SPARK_WIDTH, _SPARK_HEIGHT, _SPARK_MARGIN = 120, 18, 5
_BARS_WIDTH, _BARS_HEIGHT = 200, 44
_STEPS_WIDTH, _STEPS_HEIGHT, _STEPS_TEXT_HEIGHT = 320, 96, 14
_MAX_STEP_BARS = 80


def draw_element(name: str, *children: Markup | str, **attributes: object) -> Markup:
    """Return an element with escaped attributes; `class_` and `stroke_width` become their names."""
    words = Markup("")
    for key, value in attributes.items():
        shown = f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
        words += Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), shown)
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, words, inner)


def draw_interval(
    mean: float | None,
    low: float | None,
    high: float | None,
    *,
    scale: tuple[float, float],
    threshold: float | None = None,
    low_is_good: bool = False,
) -> Markup:
    """Draw a mean as a dot on its interval, with the threshold of the gate; empty if unknown."""
    if mean is None:
        return Markup("")

    def find_x(value: float) -> float:
        span = _INTERVAL_WIDTH - 2 * _INTERVAL_MARGIN
        return _INTERVAL_MARGIN + find_share(value, scale) * span

    y = 25
    parts = [_draw_bar("axis", find_x(scale[0]), find_x(scale[1]), y)]
    for share in range(11):
        x = find_x(scale[0] + (scale[1] - scale[0]) * share / 10)
        parts.append(draw_element("line", class_="axis", x1=x, y1=y - 3, x2=x, y2=y + 3))
    if low is not None and high is not None:
        parts.append(_draw_bar("band", find_x(low), find_x(high), y))
    parts.append(draw_element("circle", class_="dot", cx=find_x(mean), cy=y, r=6))
    if threshold is not None and scale[0] <= threshold <= scale[1]:
        x = find_x(threshold)
        state = choose_gate_class(mean, threshold, low_is_good=low_is_good)
        parts.append(draw_element("line", class_=state, x1=x, y1=12, x2=x, y2=38))
        # Centred, unless the words would then leave the picture.
        anchor = "end" if x > _INTERVAL_WIDTH * 0.7 else "start" if x < 80 else "middle"
        text = f"threshold {format_number(threshold)}"
        parts.append(draw_element("text", text, class_="gate-name", x=x, y=9, text_anchor=anchor))
    for value, anchor in ((scale[0], "start"), (scale[1], "end")):
        x = find_x(value)
        parts.append(draw_element("text", f"{value:g}", x=x, y=48, text_anchor=anchor))
    return draw_element(
        "svg",
        *parts,
        class_="interval",
        viewBox=f"0 0 {_INTERVAL_WIDTH} {_INTERVAL_HEIGHT}",
        role="img",
        aria_label=describe_interval(mean, low, high, threshold=threshold),
    )


def draw_spark(
    mean: float | None,
    low: float | None,
    high: float | None,
    *,
    scale: tuple[float, float],
    threshold: float | None = None,
    low_is_good: bool = False,
) -> Markup:
    """Draw an interval small enough for the cell of a table; empty if unknown."""
    if mean is None:
        return Markup("")

    def find_x(value: float) -> float:
        return _SPARK_MARGIN + find_share(value, scale) * (_SPARK_WIDTH - 2 * _SPARK_MARGIN)

    y = _SPARK_HEIGHT / 2
    parts = [_draw_bar("axis", find_x(scale[0]), find_x(scale[1]), y)]
    if low is not None and high is not None:
        parts.append(_draw_bar("band", find_x(low), find_x(high), y))
    if threshold is not None and scale[0] <= threshold <= scale[1]:
        x = find_x(threshold)
        state = choose_gate_class(mean, threshold, low_is_good=low_is_good)
        parts.append(draw_element("line", class_=state, x1=x, y1=1, x2=x, y2=_SPARK_HEIGHT - 1))
    parts.append(draw_element("circle", class_="dot", cx=find_x(mean), cy=y, r=4))
    return draw_element(
        "svg",
        *parts,
        class_="spark",
        viewBox=f"0 0 {_SPARK_WIDTH} {_SPARK_HEIGHT}",
        role="img",
        aria_label=describe_interval(mean, low, high, threshold=threshold),
    )


def choose_gate_class(mean: float, threshold: float, *, low_is_good: bool = False) -> str:
    """Return the class of the line of a threshold."""
    is_reached = reaches_threshold(mean, threshold, low_is_good=low_is_good)
    return "gate" if is_reached else "gate missed"


def _draw_bar(class_: str, start: float, end: float, y: float) -> Markup:
    return draw_element("line", class_=class_, x1=start, y1=y, x2=end, y2=y)


def draw_bars(counts: Sequence[int], *, first: float, last: float, label: str) -> Markup:
    """Draw a histogram between two numbers; empty without counts."""
    most = max(counts, default=0)
    if not most:
        return Markup("")
    room, width = _BARS_HEIGHT - 14, _BARS_WIDTH / len(counts)
    parts = []
    for index, count in enumerate(counts):
        # A bin with few results stays visible beside one with thousands.
        height = max(count / most * room, 1.5) if count else 0.0
        title = draw_element("title", f"{count:,}")
        parts.append(
            draw_element(
                "rect",
                title,
                class_="bin",
                x=index * width + 1,
                y=room - height,
                width=width - 2,
                height=height,
                rx=1.5,
            )
        )
    parts.append(draw_element("line", class_="axis", x1=0, y1=room, x2=_BARS_WIDTH, y2=room))
    for value, x, anchor in ((first, 0, "start"), (last, _BARS_WIDTH, "end")):
        parts.append(draw_element("text", f"{value:g}", x=x, y=_BARS_HEIGHT, text_anchor=anchor))
    return draw_element(
        "svg",
        *parts,
        class_="bars",
        viewBox=f"0 0 {_BARS_WIDTH} {_BARS_HEIGHT}",
        role="img",
        aria_label=label,
    )


def draw_steps(rewards: Sequence[float | None]) -> Markup:
    """Draw the rewards in order; of many steps, sums of consecutive ones. Empty without steps."""
    if not rewards:
        return Markup("")
    size = -(-len(rewards) // _MAX_STEP_BARS)
    bars: list[float | None] = []
    for at in range(0, len(rewards), size):
        part = [each for each in rewards[at : at + size] if each is not None]
        bars.append(sum(part) if len(part) == len(rewards[at : at + size]) else None)
    known = [bar for bar in bars if bar is not None]
    high, low = max((0.0, *known)), min((0.0, *known))
    span = (high - low) or 1.0
    room = _STEPS_HEIGHT - 2 * _STEPS_TEXT_HEIGHT

    def find_y(value: float) -> float:
        return _STEPS_TEXT_HEIGHT + (high - value) / span * room

    width = _STEPS_WIDTH / len(bars)
    parts = [draw_element("line", class_="axis", x1=0, y1=find_y(0), x2=_STEPS_WIDTH, y2=find_y(0))]
    for number, bar in enumerate(bars):
        first, last = number * size + 1, min((number + 1) * size, len(rewards))
        steps = f"step {first}" if first == last else f"steps {first} to {last}"
        x, inner = number * width + width * 0.15, max(width * 0.7, 1.0)
        if bar is None:
            title = draw_element("title", f"{steps}: reward unknown")
            y = find_y(0)
            parts.append(
                draw_element(
                    "rect", title, class_="reward none", x=x, y=y - 3, width=inner, height=6
                )
            )
            continue
        title = draw_element("title", f"{steps}: reward {format_number(bar)}")
        top, bottom = find_y(max(bar, 0.0)), find_y(min(bar, 0.0))
        # A reward of 0 is a step too, and stays visible.
        parts.append(
            draw_element(
                "rect",
                title,
                class_="reward gain" if bar > 0 else "reward loss" if bar < 0 else "reward",
                x=x,
                y=top if bar else top - 1,
                width=inner,
                height=max(bottom - top, 2.0),
                rx=1,
            )
        )
    parts.append(draw_element("text", f"{high:g}", x=0, y=_STEPS_TEXT_HEIGHT - 4))
    if low < 0:
        parts.append(draw_element("text", f"{low:g}", x=0, y=_STEPS_HEIGHT - 2))
    count = format_plural(len(rewards), "step")
    text = count if size == 1 else f"{count}, {size} in each bar"
    parts.append(draw_element("text", text, x=_STEPS_WIDTH, y=_STEPS_HEIGHT - 2, text_anchor="end"))
    return draw_element(
        "svg",
        *parts,
        class_="steps",
        viewBox=f"0 0 {_STEPS_WIDTH} {_STEPS_HEIGHT}",
        role="img",
        aria_label=f"rewards of {count}",
    )


def draw_meter(value: float | None, *, high: float = 1.0) -> Markup:
    """Draw a value as a bar between 0 and `high`; empty if unknown or outside."""
    if value is None or high <= 0 or not 0 <= value <= high:
        return Markup("")
    width, height = 120.0, 8.0
    return draw_element(
        "svg",
        draw_element("rect", class_="track", x=0, y=0, width=width, height=height, rx=4),
        draw_element(
            "rect", class_="bin", x=0, y=0, width=width * value / high, height=height, rx=4
        ),
        class_="meter",
        viewBox=f"0 0 {width:g} {height:g}",
        role="img",
        aria_label=format_number(value),
    )


def describe_interval(
    mean: float, low: float | None, high: float | None, *, threshold: float | None = None
) -> str:
    """Describe an interval in words, for readers who cannot see its picture."""
    text = f"score {format_number(mean)}"
    if low is not None and high is not None:
        text += f", interval {format_number(low)} to {format_number(high)}"
    if threshold is not None:
        text += f", threshold {format_number(threshold)}"
    return text
