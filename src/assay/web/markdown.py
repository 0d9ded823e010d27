"""Markdown as markup: an allow-list of tags without attributes; links and images stay text."""

from collections.abc import Sequence
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from .render import show_hidden_characters

# Every other token is shown as its escaped text. No element gets an attribute of the text.
_TAGS = frozenset(
    "p h1 h2 h3 h4 h5 h6 ul ol li blockquote em strong s table thead tbody tr th td".split()
)


@lru_cache(maxsize=1)
def _build_parser() -> MarkdownIt:
    # `html: False` is the default of this preset's options here: tags stay text.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": 20})
    return parser.enable(["table", "strikethrough"])


def render_markdown(text: str) -> Markup:
    """Render untrusted Markdown. Nothing in it can run, load or link."""
    shown = str(show_hidden_characters(text))
    return Markup('<div class="markdown">{}</div>').format(
        _render_tokens(_build_parser().parse(shown))
    )


def _render_tokens(tokens: Sequence[Token]) -> Markup:
    parts: list[Markup] = []
    addresses: list[str] = []
    for token in tokens:
        if token.type == "inline":
            parts.append(_render_tokens(token.children or ()))
        elif token.type == "link_open":
            addresses.append(str(token.attrGet("href") or ""))
            parts.append(Markup('<span class="inert">'))
        elif token.type == "link_close":
            address = addresses.pop() if addresses else ""
            parts.append(Markup("</span> <small>({})</small>").format(address))
        elif token.type == "image":
            address = str(token.attrGet("src") or "")
            parts.append(
                Markup('<span class="inert">image: {}</span> <small>({})</small>').format(
                    token.content, address
                )
            )
        else:
            parts.append(_render_token(token))
    return Markup("").join(parts)


def _render_token(token: Token) -> Markup:
    if token.nesting == 0:
        if token.type in ("fence", "code_block"):
            return Markup("<pre><code>{}</code></pre>").format(token.content)
        if token.type == "code_inline":
            return Markup("<code>{}</code>").format(token.content)
        if token.type == "hr":
            return Markup("<hr>")
        if token.type in ("hardbreak", "softbreak"):
            return Markup("<br>") if token.type == "hardbreak" else Markup("\n")
        return escape(token.content)
    if token.tag not in _TAGS or token.hidden:
        return Markup("")
    # Headings of a message are below those of the page.
    tag = f"h{min(int(token.tag[1]) + 3, 6)}" if token.tag[0] == "h" else token.tag
    return Markup("<{}>" if token.nesting > 0 else "</{}>").format(tag)
