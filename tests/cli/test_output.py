"""Text of strangers on the terminal: nothing of it is an instruction."""

import json
import os
import subprocess
import sys
import unicodedata
from argparse import Namespace
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from assay.cli.output import (
    Styled,
    ask_yes_or_no,
    cut,
    format_fields,
    format_lines,
    format_row,
    has_browser,
    is_ascii_only,
    pad,
    print_json,
    print_message,
    print_report,
    redirect_output_to_stderr,
    render,
    sanitize_lines,
    sanitize_text,
    sanitize_to_line,
    wrap_beside,
    write_samples,
    write_whole,
)
from assay.errors import ConfigError
from assay.types import Sample
from make import asked, said, sample


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "\ufffd[31mred\ufffd[0m"),
        ("\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        ("\x9b2J", "\ufffd2J"),
        ("a\x7f\x08b", "a\ufffd\ufffdb"),
        ("two\r\nlines\tof text", "two lines of text"),
        ("\u202eevil", "\ufffdevil"),
        ("half \ud83d", "half \ufffd"),
        ("family \U0001f468\u200d\U0001f469", "family \U0001f468\u200d\U0001f469"),
        ("[bold]kept[/bold]", "[bold]kept[/bold]"),
    ],
)
def test_control_characters_become_visible(text: str, shown: str) -> None:
    assert sanitize_to_line(text) == shown


@given(st.text())
def test_no_text_keeps_a_control_character(text: str) -> None:
    for shown in (sanitize_to_line(text), sanitize_lines(text).replace("\n", "")):
        kept = {unicodedata.category(each)[0] for each in shown if each not in "\u200c\u200d"}
        assert "C" not in kept


def test_lines_and_their_indentation_are_kept() -> None:
    assert sanitize_lines("what\x1b\n  hint: do") == "what\ufffd\n  hint: do"


def test_tabs_and_foreign_line_ends_are_made_plain_too() -> None:
    assert sanitize_text("a\tb\r\nc\rd\x1b") == "a   b\nc\nd\ufffd"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("short", "short"),
        ("exactly 10", "exactly 10"),
        ("eleven long", "eleven lo…"),
        ("漢漢漢漢漢漢", "漢漢漢漢…"),
        ("a\x1b[2Jbcdefghij", "a\ufffd[2Jbcde…"),
    ],
)
def test_text_is_cut_to_the_columns_there_are(text: str, shown: str) -> None:
    assert cut(text, 10) == shown


@pytest.mark.parametrize("columns", [1, 0, -1, -40])
@pytest.mark.parametrize("text", ["漢字", "a\u0301", "long enough", ""])
def test_text_is_cut_where_no_column_is_left(text: str, columns: int) -> None:
    assert cell_len(cut(text, columns)) <= max(columns, 0)
    assert cell_len(pad(text, columns)) <= max(columns, 0)


def test_padding_counts_columns_and_not_characters() -> None:
    assert pad("漢", 4) == "漢  "
    assert pad("a", 4) == "a   "


def test_json_is_ascii_and_keeps_every_character(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"text": "\x1b[2J\x7f漢\u202e"})

    printed = capsys.readouterr().out
    assert printed.isascii()
    assert not {"\x1b", "\x7f"} & set(printed)
    assert json.loads(printed) == {"text": "\x1b[2J\x7f漢\u202e"}


def test_showing_uses_no_colours_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.text import Text

    monkeypatch.setenv("COLUMNS", "20")

    render(Text("red", style="red"))

    assert capsys.readouterr().out == "red\n"


@pytest.mark.parametrize(
    ("encoding", "expected"), [("utf-8", False), ("ascii", True), ("latin-1", True)]
)
def test_a_stream_of_few_characters_is_noticed(
    encoding: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(BytesIO(), encoding=encoding))

    assert is_ascii_only() is expected


def test_no_stream_at_all_counts_as_one_of_few_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert is_ascii_only()


@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_a_stream_that_was_never_open_is_left_alone(closed: str, tmp_path: Path) -> None:
    # With file=None, `print` would write a message between the lines of the result.
    script = (
        "from argparse import Namespace\n"
        "from assay.cli.output import print_message, print_report\n"
        "print_report(Namespace(json=True), [], {'a': 1})\n"
        "print_message('a note')\n"
    )
    number = {"stdout": 1, "stderr": 2}[closed]
    ended = subprocess.run(
        ["bash", "-c", f'exec "$@" {number}>&-', "-", sys.executable, "-c", script],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
    )

    assert ended.returncode == 0
    assert ended.stdout == ("" if closed == "stdout" else '{\n  "a": 1\n}\n')
    assert ended.stderr == ("" if closed == "stderr" else "a note\n")


@pytest.mark.parametrize(
    ("answer", "expected"), [("y\n", True), ("YES\n", True), ("no\n", False), ("", False)]
)
def test_only_a_yes_is_a_yes(
    answer: str, expected: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", StringIO(answer))

    assert ask_yes_or_no("Run \x1b[2J it?") is expected

    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "Run \ufffd[2J it? [y/N] ")


SCRIPT = """
import os, subprocess, sys
from assay.cli.output import redirect_output_to_stderr

print("before")
with redirect_output_to_stderr():
    print("printed")
    subprocess.run(["echo", "by a child"])
    os.write(1, b"by number\\n")
    sys.__stdout__.write("to the stream itself\\n")
print("after")
"""
FAILING = """
from assay.cli.output import redirect_output_to_stderr

try:
    with redirect_output_to_stderr():
        raise KeyError
except KeyError:
    print("restored")
"""
SHORT = """
from assay.cli.output import redirect_output_to_stderr

with redirect_output_to_stderr():
    print("inside")
print("outside")
"""


def run(script: str, redirection: str = "") -> "subprocess.CompletedProcess[str]":
    shell = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, script]
    return subprocess.run(shell, capture_output=True, text=True, timeout=300)


def test_nothing_that_is_written_inside_reaches_stdout() -> None:
    ended = run(SCRIPT)

    assert (ended.returncode, ended.stdout) == (0, "before\nafter\n")
    assert sorted(ended.stderr.splitlines()) == [
        "by a child",
        "by number",
        "printed",
        "to the stream itself",
    ]


def test_stdout_is_restored_after_an_error() -> None:
    ended = run(FAILING)

    assert (ended.stdout, ended.stderr) == ("restored\n", "")


@pytest.mark.parametrize(
    ("redirection", "stdout", "stderr"), [("1>&-", "", "inside\n"), ("2>&-", "outside\n", "")]
)
def test_a_stream_may_be_closed(redirection: str, stdout: str, stderr: str) -> None:
    ended = run(SHORT, redirection)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, stdout, stderr)


def test_streams_in_memory_leave_the_descriptors_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(1)

    with redirect_output_to_stderr():
        print("inside")
        assert os.fstat(1) == before
    print("outside")

    assert capsys.readouterr() == ("outside\n", "inside\n")


WHOLE = sample(asked("a"), said("b"), id="s")


def test_samples_without_a_line_are_left_out(tmp_path: Path) -> None:
    lines = iter([None, "{}"])

    write_samples(str(tmp_path / "a.jsonl"), iter([WHOLE, WHOLE]), lambda _: next(lines))

    assert (tmp_path / "a.jsonl").read_text() == "{}\n"


def test_an_interrupted_file_is_not_left_behind(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Sample]:
        yield WHOLE
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_samples(str(tmp_path / "a.jsonl"), interrupted(), lambda _: "{}")

    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none/a\.jsonl cannot be written: No such file"):
        write_samples(str(tmp_path / "none" / "a.jsonl"), [])


def test_styles_are_for_terminals_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    lines = [Styled("passed \x1b[2J", "green"), ("a", Styled("b", "bold"), "c"), "\x1b[31mred"]

    shown = format_lines(lines, terminal)

    assert shown == "\x1b[32mpassed \ufffd[2J\x1b[0m\na\x1b[1mb\x1b[0mc\n\ufffd[31mred"
    plain = "passed \ufffd[2J\nabc\n\ufffd[31mred"
    assert format_lines(lines, StringIO()) == format_lines(lines, None) == plain
    for name, value in {"NO_COLOR": "1", "CI": "true", "TERM": "dumb"}.items():
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert format_lines(lines, terminal) == plain


def test_a_report_is_text_or_json_and_leaves_stdout_to_samples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for as_json in (False, True):
        print_report(Namespace(json=as_json), ["a \x1b[2J"], {"a": "\x7f"})
    print_report(Namespace(json=False, output="-"), ["b"], {})

    out, err = capsys.readouterr()
    assert out == 'a \ufffd[2J\n{\n  "a": "\\u007f"\n}\n'
    assert err == "b\n"


def test_messages_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    print_message("two\nlines \x1b[2J")

    assert capsys.readouterr() == ("", "two\nlines \ufffd[2J\n")


def test_fields_without_a_value_are_left_out_and_lists_have_one_label() -> None:
    assert format_fields({"run": "r", "model": None, "note": ["a", "b"], "left out": []}) == [
        "run           r",
        "note          a",
        "              b",
    ]


def test_the_cells_of_a_row_are_padded_and_cut_but_not_those_behind_the_widths() -> None:
    assert format_row(("abcdef", "b", "as long as it is"), (4, 3)) == "abc… b   as long as it is"


def test_a_file_is_replaced_only_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_text("old")

    def break_off() -> None:
        with write_whole(target) as unfinished:
            unfinished.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert (target.read_text(), len(list(tmp_path.iterdir()))) == ("old", 1)

    with write_whole(target) as unfinished:
        unfinished.write_text("new")
    assert (target.read_text(), len(list(tmp_path.iterdir()))) == ("new", 1)


def test_text_is_wrapped_by_columns_and_long_words_are_broken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    lines = wrap_beside("  2 x ", f"two words {'漢' * 30} end\x1b[2J", max_lines=9)

    assert lines == ["  2 x two words", f"      {'漢' * 22}", f"      {'漢' * 8} end\ufffd[2J"]
    assert max(map(cell_len, lines)) <= 50


def test_text_beyond_the_lines_is_cut_with_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")

    assert wrap_beside("> ", "word " * 30, max_lines=2)[1:] == [f"  {'word ' * 9}wo…"]
    assert wrap_beside("> ", "", max_lines=2) == ["> "]


def test_a_process_without_stdout_has_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    assert not has_browser()
