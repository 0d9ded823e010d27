"""Tables of reports in notebooks: HTML in which untrusted text is escaped."""

import html
from collections.abc import Iterable, Sequence

from .number_format import clean_text

_MAX_CELL_CHARS = 200
_CELL_STYLE = "text-align:left;vertical-align:top;padding:2px 8px"


def escape_html(text: str, longest: int = _MAX_CELL_CHARS) -> str:
    """Put untrusted text on one line, cut it, and escape it for HTML."""
    return html.escape(clean_text(text, longest))


def format_html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with a title; "" without rows. All texts are escaped."""

    def format_cells(cells: Sequence[str], tag: str) -> str:
        made = (f'<{tag} style="{_CELL_STYLE}">{escape_html(cell)}</{tag}>' for cell in cells)
        return f"<tr>{''.join(made)}</tr>"

    body = "".join(format_cells(row, "td") for row in rows)
    if not body:
        return ""
    return f"<p>{escape_html(title)}</p><table>{format_cells(head, 'th')}{body}</table>"
