"""Lines of the terminal's section: at most 80 columns, and no commands."""

import pytest

from assay.pytest_plugin.session_report import _escape_workflow_command, _format_title, _wrap_text


@pytest.mark.parametrize(
    "name", ["short", "x" * 72, "folder/" * 20 + "test_a.py::test[end]", "測" * 50]
)
def test_a_title_keeps_the_end_of_a_name_within_80_columns(name: str) -> None:
    (line,) = _format_title("FAILED", name)

    wide = sum(2 if ord(each) > 0x2E80 else 1 for each in line)
    assert wide <= 80
    assert line.startswith("FAILED  ")
    assert line.endswith(name[-10:])


def test_text_is_wrapped_without_control_characters() -> None:
    lines = _wrap_text("word " * 40 + "\x1b[31m\x07")

    assert all(len(line) <= 80 for line in lines)
    assert not any("\x1b" in line or "\x07" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("::add-mask::x", ": :add-mask::x"),
        ("  ::error::x", "  : :error::x"),
        ("a ::error::x", "a ::error::x"),
    ],
)
def test_no_line_is_a_command(line: str, shown: str) -> None:
    assert _escape_workflow_command(line) == shown
