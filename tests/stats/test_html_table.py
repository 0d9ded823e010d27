"""Tables for notebooks: untrusted text is escaped."""

from assay.stats import escape_html, format_html_table


def test_markup_and_control_characters_are_escaped() -> None:
    assert escape_html('<a href="x">\x1b[2J') == "&lt;a href=&quot;x&quot;&gt;\ufffd[2J"
    assert escape_html("x" * 300, 5) == "xxxx…"


def test_a_table_without_rows_is_left_out() -> None:
    assert format_html_table("title", ("a",), []) == ""
    table = format_html_table("title", ("a",), [("<b>",)])
    assert table.count("<tr>") == 2
    assert "&lt;b&gt;" in table
