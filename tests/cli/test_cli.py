"""`main`: which command runs, and what each way of failing comes to."""

import errno
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import assay.cli
from assay import __version__
from assay.cli import main
from assay.errors import AccessDenied, DatasetError

Run = Callable[[Namespace], int]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Installs a command `act` with one option and the given body."""

    def install(run: Run) -> None:
        module = ModuleType("assay.cli.act")

        def configure(parser: ArgumentParser) -> None:
            parser.add_argument("--size", type=int, default=0)

        vars(module).update(configure=configure, main=run)
        monkeypatch.setitem(assay.cli.COMMANDS, "act", "act for a test")
        monkeypatch.setitem(sys.modules, module.__name__, module)

    return install


def test_a_command_gets_its_arguments_and_decides_the_exit_status(
    command: Callable[[Run], None],
) -> None:
    command(lambda args: int(args.size))

    assert main(["act", "--size", "1"]) == 1
    assert main(["act"]) == 0


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0

    printed = capsys.readouterr().out
    width = max(map(len, assay.cli.COMMANDS))
    assert all(
        f"  {name:{width}}  {does}\n" in printed for name, does in assay.cli.COMMANDS.items()
    )


def test_a_command_has_help_of_its_own(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda args: 1)

    assert main(["act", "--help"]) == 0

    printed = capsys.readouterr().out
    assert "usage: assay act" in printed
    assert "Act for a test." in printed


DOCS = Path(__file__).parents[2] / "docs"


def test_the_docs_show_how_to_call_every_command() -> None:
    pages = "".join(page.read_text("utf-8") for page in DOCS.glob("*.md"))

    assert [name for name in assay.cli.COMMANDS if f"$ assay {name} " not in pages] == []


@pytest.mark.parametrize("page", ["README.md", "docs/commands.md"])
def test_pages_list_the_commands_in_the_order_of_the_help(page: str) -> None:
    text = (DOCS.parent / page).read_text("utf-8")

    listed = re.findall(r"^\| `assay (\w+)", text, re.MULTILINE)

    assert listed == list(assay.cli.COMMANDS)


def test_the_page_of_commands_shows_the_help_of_each() -> None:
    """That it is what the command prints is checked by `tests/test_docs.py`."""
    page = (DOCS / "commands.md").read_text("utf-8")
    described = re.findall(r"^## assay (\w+)$", page, re.MULTILINE)

    missing = [name for name in described if f"$ assay {name} --help\nusage: " not in page]

    assert {"eval", "runs", "show", "compare", "gate", "doctor", "quickstart"} <= set(described)
    assert missing == []


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"assay {__version__}\n"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "usage: assay [-h] [--version] [command] ..."),
        (
            ["quikstart"],
            "assay: no command named 'quikstart'\n  hint: did you mean `assay quickstart`?",
        ),
        (["xyz"], "assay: no command named 'xyz'\n  hint: `assay --help` lists the commands\n"),
        (["--quiet"], "assay: unrecognized arguments: --quiet\n  hint: see `assay --help`"),
        (
            ["act", "--sizes=3"],
            "assay act: unrecognized arguments: --sizes=3\n  hint: did you mean --size? See `assay",
        ),
        (["act", "--size", "x"], "assay act: argument --size: invalid int value: 'x'"),
        (["act", "--si", "1"], "assay act: unrecognized arguments: --si 1"),
    ],
)
def test_a_wrong_request_exits_2_and_says_what_to_do(
    argv: list[str],
    message: str,
    command: Callable[[Run], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    command(lambda args: 0)

    assert main(argv) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(message)


def test_an_error_raised_on_purpose_exits_2_without_a_traceback(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Namespace) -> int:
        raise DatasetError("not \x1b[2J JSON", where="a.jsonl:3", hint="mend it")

    command(fail)

    assert main(["act"]) == 2
    assert capsys.readouterr().err == "a.jsonl:3: not \ufffd[2J JSON\n  hint: mend it\n"


def test_an_error_on_the_way_to_a_server_exits_3(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Namespace) -> int:
        raise AccessDenied("the key is refused", where="openai:m", hint="set OPENAI_API_KEY")

    command(fail)

    assert main(["act"]) == 3
    assert capsys.readouterr().err.startswith("openai:m: the key is refused\n  hint: ")


def test_a_bug_is_neither_a_no_nor_a_wrong_request_and_shows_where_it_is(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Namespace) -> int:
        raise ZeroDivisionError("of \x1b[2J zero")

    command(fail)

    assert main(["act"]) == 3
    told = capsys.readouterr().err
    assert told.startswith("Traceback (most recent call last):\n")
    assert "in fail\n" in told
    assert told.endswith("ZeroDivisionError: of \ufffd[2J zero\n")


@pytest.mark.parametrize("code", [0, None, 1, "bye"])
def test_code_that_a_command_runs_cannot_end_it_as_if_all_were_well(
    code: object, command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(lambda args: sys.exit(code))  # type: ignore[arg-type]  # whatever users give it

    assert main(["act"]) == 3
    assert capsys.readouterr().err == (f"aborted: user code called sys.exit({code!r})\n")


def test_an_interrupt_exits_130(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(args: Namespace) -> int:
        raise KeyboardInterrupt

    command(interrupt)

    assert main(["act"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_output_is_optional(
    command: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    command(lambda args: 1)
    monkeypatch.setattr(sys, "stdout", None)

    assert main(["act"]) == 1


@pytest.mark.parametrize(("code", "status"), [(errno.EPIPE, 141), (errno.ENOSPC, 3)])
def test_output_that_cannot_be_written_is_an_exit_status(
    code: int, status: int, command: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the real thing comes to the same is shown with processes in `tests/flows/`."""

    def fail(args: Namespace) -> int:
        raise OSError(code, "cannot write")

    command(fail)
    monkeypatch.setattr(assay.cli, "_abandon_output", lambda status: status)

    assert main(["act"]) == status


def test_any_other_fault_of_the_system_is_not_hidden(
    command: Callable[[Run], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(args: Namespace) -> int:
        raise FileNotFoundError(errno.ENOENT, "gone")

    command(fail)

    assert main(["act"]) == 3
    assert "FileNotFoundError: [Errno 2] gone" in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv",
    [
        ["eval", "x.py", "--model", "mock:echo", "--model", "mock:fixed"],
        ["eval", "x.py", "--max-samples", "1", "--max-samples=2"],
        ["judge", "x.jsonl", "--rubric", "r", "--endpoint", "a:b", "--endpoint", "a:b"],
        ["show", "latest", "--store", "a.db", "--store", "b.db"],
    ],
)
def test_an_option_with_one_value_is_given_once(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2

    assert "the option is given more than once; pass it once" in capsys.readouterr().err


def test_an_option_that_collects_values_may_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    assert main(["doctor", "--model", "mock:echo", "--model", "mock:echo"]) == 0
