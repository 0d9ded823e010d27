"""Templates of the pages. Escaping is always on, and no text can become markup.

Texts of datasets and models are untrusted. Besides escaping, characters that reorder or hide other
text are shown as their code points.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from assay.stats import format_number, format_plural

from . import charts, curves
from .page import encode_segment

# Control characters except tab, line feed and carriage return; marks that change the direction of
# text; separators and tags that are invisible. Joiners are kept: scripts and emoji need them.
_HIDDEN_CHARACTERS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f]"
)
MAX_QUOTED_CHARS = 80
_UNITS = ("", " k", " M", " G", " T")


@cache
def build_templates() -> Environment:
    """Return the environment of all templates, compiled once for all viewers of the process."""
    environment = Environment(
        loader=PackageLoader("assay.web"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Runs on every value before it is escaped, so that no template can forget it.
        finalize=show_hidden_characters,
        auto_reload=False,
    )
    environment.filters.update(FILTERS)
    environment.globals["charts"] = charts
    environment.globals["curves"] = curves
    # Compiled now, so that the first visit of a page takes no longer than the next.
    for name in environment.list_templates(extensions=["html"]):
        environment.get_template(name)
    return environment


def show_hidden_characters(value: Any) -> Any:
    """Replace invisible and direction-changing characters of a text by `<U+202E>`."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    # ASCII text without control characters is the common case.
    if value.isascii() and value.isprintable():
        return value
    return _HIDDEN_CHARACTERS.sub(lambda match: f"<U+{ord(match[0]):04X}>", value)


def format_count(value: float | None) -> str:
    """Format a whole number with separators: `12,345`; `unknown` for None."""
    return "unknown" if value is None else f"{round(value):,}"


def format_short(value: float | None) -> str:
    """Format a large number in three digits: `1.23 M`."""
    if value is None:
        return "unknown"
    scaled, unit = float(value), 0
    while abs(scaled) >= 999.5 and unit < len(_UNITS) - 1:
        scaled, unit = scaled / 1000, unit + 1
    if unit == 0:
        return f"{round(scaled):,}"
    return f"{scaled:.3g}{_UNITS[unit]}"


def format_score(value: float | None) -> str:
    """Format a score in three decimals; `unscored` for None."""
    return "unscored" if value is None else format_number(value)


def format_difference(value: float | None) -> str:
    """Format a difference with its sign: `+0.021`, `−0.021`, `±0.000`."""
    if value is None:
        return "unknown"
    text = f"{abs(value):.3f}"
    if not float(text):
        return f"±{text}"
    return f"{'+' if value > 0 else '−'}{text}"


def format_money(value: float | None) -> str:
    """Format US dollars with as many decimals as are needed to see the amount."""
    if value is None:
        return "unknown"
    if value == 0 or abs(value) >= 0.995:
        return f"${value:,.2f}"
    if abs(value) >= 0.0001:
        return f"${value:.4f}"
    # Shown as more than nothing, which it is.
    return f"${value:.7f}".rstrip("0") if abs(value) >= 1e-7 else "< $0.0000001"


def format_seconds(value: float | None) -> str:
    """Format a duration: `850 ms`, `2.1 s`, `3 min 20 s`, `2 h 5 min`."""
    if value is None:
        return "unknown"
    if value == float("inf"):
        return "over 1 h"
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 99.95:
        return f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    return f"{minutes // 60} h {minutes % 60} min"


def format_share(value: float | None) -> str:
    """Format a share as a percentage: `12.5 %`."""
    return "unknown" if value is None else f"{value * 100:.3g} %"


def format_probability(value: float | None) -> str:
    """Format a p-value in four decimals: `0.0312`, `< 0.0001`, and never as zero."""
    if value is None:
        return "unknown"
    return f"{value:.4f}" if value >= 0.0001 else "< 0.0001"


def format_moment(value: str | float | None) -> str:
    """Format a time in UTC to the minute: `2026-02-14 09:30`."""
    moment = parse_stored_moment(value)
    return "unknown" if moment is None else moment.strftime("%Y-%m-%d %H:%M")


def format_age(value: str | float | None) -> str:
    """Format the time since then: `just now`, `5 min ago`, `3 days ago`; a date after a month."""
    moment = parse_stored_moment(value)
    if moment is None:
        return "unknown"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    if seconds < 45:
        return "just now"
    if seconds < 5400:
        return f"{max(round(seconds / 60), 1)} min ago"
    if seconds < 129_600:
        return f"{round(seconds / 3600)} h ago"
    if seconds < 2_600_000:
        return f"{format_plural(round(seconds / 86_400), 'day')} ago"
    return moment.strftime("%Y-%m-%d")


def parse_stored_moment(value: str | float | None) -> datetime | None:
    """Parse a stored time, in ISO 8601 or in seconds since 1970; None if it is neither."""
    # Imported runs may have times without an offset, or none at all.
    if value is None:
        return None
    try:
        if not isinstance(value, str):
            return datetime.fromtimestamp(value, UTC)
        moment = datetime.fromisoformat(value)
        # The first and the last year have moments that UTC has not.
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError, OSError):
        return None


def read_finite_number(value: Any) -> float | None:
    """Return a number of a record that may contain anything; None for other values."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if isfinite(number) else None


def shorten_line(text: str, most: int = 200) -> str:
    """Put a text on one line, cut with `…`."""
    line = " ".join(text[: most * 8].split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def format_json(value: Any) -> str:
    """Format plain values as indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def quote_for_filter(text: str) -> str:
    """Quote a text for a filter expression; only its beginning, without a mark of being cut."""
    quoted = text[:MAX_QUOTED_CHARS].rstrip("…").replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


FILTERS: dict[str, Callable[..., str]] = {
    "count": format_count,
    "short": format_short,
    "score": format_score,
    "number": format_number,
    "difference": format_difference,
    "money": format_money,
    "seconds": format_seconds,
    "share": format_share,
    "probability": format_probability,
    "moment": format_moment,
    "age": format_age,
    "cut": shorten_line,
    "plural": format_plural,
    "segment": encode_segment,
    "pretty": format_json,
    "quote_filter": quote_for_filter,
}
"""Filters of the templates: `{{ view.cost_usd | money }}`."""
