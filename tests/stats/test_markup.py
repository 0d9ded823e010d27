"""Foreign text in Markdown and workflow commands: it stays text."""

from assay.stats.markup import escape_command, escape_command_property, escape_markdown


def test_nothing_in_a_text_is_markup() -> None:
    evil = "a|b\n<img src=x> `c` [d](e) \x1b[31m & @user #1 *y* \u202e"

    assert escape_markdown(evil) == (
        "a\\|b &lt;img src=x> \\`c\\` \\[d\\](e) \ufffd\\[31m &amp; \\@user \\#1 \\*y\\* \ufffd"
    )


def test_a_long_text_is_cut_where_it_can_be_seen() -> None:
    assert escape_markdown("word " * 100, 10) == "word word…"


def test_no_second_command_can_be_smuggled_into_one() -> None:
    assert escape_command("100%\r\n::add-mask::x") == "100%25%0D%0A::add-mask::x"
    assert escape_command_property("a,line=1::b") == "a%2Cline=1%3A%3Ab"
