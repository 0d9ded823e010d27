"""The timeline of an episode: one bar for the reward of each step."""

from collections.abc import Sequence

from markupsafe import Markup

from assay.stats import format_number, format_plural

from .charts import draw_element

_WIDTH, _HEIGHT, _TEXT_HEIGHT = 320, 96, 14
_MAX_BARS = 80


def draw_steps(rewards: Sequence[float | None]) -> Markup:
    """Draw the rewards in order; of many steps, sums of consecutive ones. Empty without steps."""
    if not rewards:
        return Markup("")
    size = -(-len(rewards) // _MAX_BARS)
    bars: list[float | None] = []
    for at in range(0, len(rewards), size):
        part = [each for each in rewards[at : at + size] if each is not None]
        bars.append(sum(part) if len(part) == len(rewards[at : at + size]) else None)
    known = [bar for bar in bars if bar is not None]
    high, low = max((0.0, *known)), min((0.0, *known))
    span = (high - low) or 1.0
    room = _HEIGHT - 2 * _TEXT_HEIGHT

    def find_y(value: float) -> float:
        return _TEXT_HEIGHT + (high - value) / span * room

    width = _WIDTH / len(bars)
    parts = [draw_element("line", class_="axis", x1=0, y1=find_y(0), x2=_WIDTH, y2=find_y(0))]
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
    parts.append(draw_element("text", f"{high:g}", x=0, y=_TEXT_HEIGHT - 4))
    if low < 0:
        parts.append(draw_element("text", f"{low:g}", x=0, y=_HEIGHT - 2))
    count = format_plural(len(rewards), "step")
    text = count if size == 1 else f"{count}, {size} in each bar"
    parts.append(draw_element("text", text, x=_WIDTH, y=_HEIGHT - 2, text_anchor="end"))
    return draw_element(
        "svg",
        *parts,
        class_="steps",
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        role="img",
        aria_label=f"rewards of {count}",
    )
