"""Markdown: shown as markup, with nothing in it that runs, loads or links."""

import re

import pytest

from assay.web.markdown import render_markdown
from recorded_pages import HOSTILE_TEXTS


def test_text_is_laid_out() -> None:
    shown = render_markdown("# Title\n\nA **bold** `word`.\n\n- one\n- two")

    assert "<h4>Title</h4>" in shown
    assert "<strong>bold</strong> <code>word</code>" in shown
    assert "<li>one</li>" in shown


def test_links_and_images_are_text_with_their_address() -> None:
    shown = render_markdown("[here](https://example.invalid/a) ![alt](http://127.0.0.1:9/b.png)")

    assert "here</span> <small>(https://example.invalid/a)</small>" in shown
    assert "image: alt</span> <small>(http://127.0.0.1:9/b.png)</small>" in shown
    assert "href" not in shown
    assert "src" not in shown


@pytest.mark.parametrize(
    "text",
    [
        *HOSTILE_TEXTS,
        "<https://example.invalid>",
        "| a |\n|:-:|\n| <b onclick=x>1</b> |",
        "```<img src=x>\n<script>\n```",
        '[a](https://example.invalid "onmouseover=x")',
        "> " * 500 + "deep",
        "[" * 5000,
        "*a **" * 3000,
    ],
)
def test_no_text_becomes_an_element_or_attribute(text: str) -> None:
    shown = render_markdown(text)

    tags = set(re.findall(r"<([^>]*)>", shown))
    allowed = re.compile(
        r"/?(p|h[4-6]|ul|ol|li|blockquote|em|strong|s|table|thead|tbody|tr|th|td|"
        r'pre|code|br|hr|div|small|span)( class="(inert|markdown)")?'
    )
    assert [tag for tag in tags if not allowed.fullmatch(tag)] == []


def test_hidden_characters_are_shown() -> None:
    assert "safe&lt;U+202E&gt;gnp" in render_markdown("safe\u202egnp")
