"""`assay check`, whole: output, exit statuses, hostile input, flat memory."""

import json
import shutil
import time
from pathlib import Path

import pytest

from assay.store.writer import WriterSettings
from assay.types import Sample
from commands import call_main, run_process
from evaluation_sessions import call_pytest
from make import answered, asked, called, said, sample
from memory import peak_of

CHECKS = r"""
checks:
  - name: no_force
    target: tool.args
    tool: bash
    not_matches: 'rm\s+-rf'
  - name: looks_first
    tool_order: [read, bash]
  - name: answers
    matches: (a+)+$
"""


def conversation(name: str, command: str, answer: str) -> Sample:
    return sample(
        asked("clean up"),
        said(None, called("read", "1", path="a"), called("bash", "2", command=command)),
        answered("x", "1"),
        answered("done", "2"),
        said(answer),
        id=name,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checks.yaml").write_text(CHECKS)
    return tmp_path


def write(folder: Path, *given: Sample) -> None:
    (folder / "s.jsonl").write_text("".join(f"{each.to_json()}\n" for each in given))


def test_conversations_that_keep_every_rule_pass(folder: Path) -> None:
    write(folder, conversation("good", "ls", "aa"))

    done = run_process(folder, "check", "s.jsonl", "--checks", "checks.yaml")

    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_breaks_a_rule_is_shown_with_turn_and_excerpt(folder: Path) -> None:
    write(folder, conversation("good", "ls", "aa"), conversation("bad", "rm -rf /", "aa"))

    done = call_main(folder, "check", "s.jsonl", "--checks", "checks.yaml")

    assert done.returncode == 1
    assert (
        "  bad: no_force | clean up\n    arguments of 'bash' in turn 2: match in "
        '\'{"command":"rm -rf /"}\'\n' in done.stdout
    )


def test_hostile_text_does_not_hang_a_pattern(folder: Path) -> None:
    write(folder, *(conversation(f"s{n}", "ls", "a" * 5000 + "!") for n in range(20)))
    started = time.process_time()

    done = call_main(folder, "check", "s.jsonl", "--checks", "checks.yaml")

    assert done.returncode == 1
    assert time.process_time() - started < 30


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("s.jsonl",), 2, "the following arguments are required: --checks"),
        (("s.jsonl", "--checks", "none.yaml"), 2, "none.yaml: the file cannot be read"),
        (
            ("none.jsonl", "--checks", "checks.yaml"),
            2,
            "none.jsonl: the file or folder does not exist",
        ),
        (("latest", "--checks", "checks.yaml"), 3, "assay.db"),
        (("s.jsonl", "--checks", "checks.yaml", "--max-samples", "0"), 2, "'0' is not a number"),
    ],
)
def test_a_wrong_request_is_refused(
    arguments: tuple[str, ...], status: int, said: str, folder: Path
) -> None:
    write(folder, conversation("good", "ls", "aa"))

    done = call_main(folder, "check", *arguments)

    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr


def test_results_can_be_piped_on(folder: Path) -> None:
    write(folder, conversation("good", "ls", "aa"))

    done = call_main(folder, "check", "s.jsonl", "--checks", "checks.yaml", "-o", "-")

    assert json.loads(done.stdout)["score"]["metrics"]["no_force"]["score"] == 1.0


def peak_of_check(folder: Path, count: int) -> int:
    """The most memory a check of so many samples of 20 kB takes."""
    line = conversation("NAME", "ls", "aa " * 7000 + "aa").to_json()
    shutil.rmtree(folder / ".assay", ignore_errors=True)
    with (folder / "s.jsonl").open("w") as file:
        file.writelines(line.replace("NAME", f"s{n}") + "\n" for n in range(count))
    command = ["check", "s.jsonl", "--checks", "checks.yaml", "-o", "out.jsonl"]
    return peak_of(f"from assay.cli import main\nmain({command!r})", folder=folder)


def test_memory_stays_flat(folder: Path) -> None:
    few, many = peak_of_check(folder, 1500), peak_of_check(folder, 6000)

    # 4500 more samples are 94 MB as text alone. The queue of samples that wait to be written may be
    # full in one check and almost empty in the other, as the machine is busy.
    assert many - few < WriterSettings().waiting_bytes


IN_PYTEST = """
from assay import evaluation_test
from assay.scorers import checks_from

keeps_the_rules = checks_from("checks.yaml")

@evaluation_test("s.jsonl", threshold=0.9)
def test_sessions(sample):
    return keeps_the_rules(sample)
"""


@pytest.mark.parametrize(("command", "status"), [("ls", 0), ("rm -rf /", 1)])
def test_checks_judge_inside_an_evaluation_test(command: str, status: int, folder: Path) -> None:
    write(folder, conversation("only", command, "aa"))
    (folder / "test_it.py").write_text(IN_PYTEST)

    session = call_pytest(folder)

    assert session.status == status, session.output
