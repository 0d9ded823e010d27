"""The example agent certified as a user would do it."""

import json
import re
import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from assay.certify.certified import CertificationResult
from commands import call_main, run_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "certify"
JUDGE = ("--judge", "judge.json")
RUNNER = ("--runner", "converter:answer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", ".assay", "out")
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True, ignore=ignored)
    return tmp_path


def test_the_example_is_planned_certified_and_shown(folder: Path) -> None:
    plan = run_process(folder, "certify", "plan", "agent.yaml", *RUNNER, *JUDGE)
    done = run_process(folder, "certify", "run", "agent.yaml", *RUNNER, *JUDGE, "-o", "out")

    assert (plan.returncode, plan.stderr) == (0, "")
    assert "60 of the agent, 1 more to warm up; 60 of the judge" in plan.stdout
    assert "too few" not in plan.stdout
    assert (done.returncode, "verdict       PASSED" in done.stdout) == (0, True), done
    result = CertificationResult.model_validate_json((folder / "out/result.json").read_text())
    assert result.certified
    assert result.warnings == ()
    assert {outcome.evidence for outcome in result.outcomes} == {"proven"}
    assert [outcome.graded_by.by for outcome in result.outcomes] == [
        "metric",
        "metric",
        "metric",
        "judge",
        "clock",
    ]
    shown = call_main(folder, "show", result.run, "time-90-min-h")
    assert "The answer is 1.5 h." in shown.stdout


def test_its_own_model_only_repeats_the_question_and_is_not_certified(folder: Path) -> None:
    done = call_main(folder, "certify", "run", "agent.yaml", *JUDGE, "--quiet")

    assert (done.returncode, done.stderr) == (1, "")
    assert "exact_answer: mean 0.000 is below 0.950; refuted" in done.stdout


def test_a_certification_that_was_interrupted_goes_on(folder: Path) -> None:
    (folder / "interrupted.py").write_text(
        "import os, pathlib, signal\n"
        "import converter\n"
        "mark = pathlib.Path('stopped')\n"
        "def answer(sample):\n"
        "    if sample.id == 'mass-3-t-kg' and not mark.exists():\n"
        "        mark.touch()\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "    return converter.answer(sample)\n"
    )
    options = ("certify", "run", "agent.yaml", "--runner", "interrupted:answer", *JUDGE)

    stopped = run_process(folder, *options)
    command = stopped.stderr.strip().splitlines()[-1].split()
    done = call_main(folder, *command[1:])

    assert stopped.returncode == 130
    assert stopped.stdout == ""
    assert command[:3] == ["assay", "certify", "run"]
    assert (done.returncode, "verdict       PASSED" in done.stdout) == (0, True), done


def test_the_golden_answers_are_right() -> None:
    """Worked out again, in another way than the agent does it."""
    rows = [json.loads(line) for line in (EXAMPLE / "golden.jsonl").read_text().splitlines()]

    wrong = [row["id"] for row in rows if not _right(row["question"], row["expected"])]

    assert len(rows) >= 60
    assert len({row["id"] for row in rows}) == len(rows)
    assert wrong == []


_UNITS: dict[str, tuple[int | Fraction, str]] = {
    **{"mm": (1, "m"), "cm": (10, "m"), "m": (1000, "m"), "km": (10**6, "m")},
    **{"in": (Fraction("25.4"), "m"), "ft": (Fraction("304.8"), "m")},
    **{"mg": (1, "g"), "g": (1000, "g"), "kg": (10**6, "g"), "t": (10**9, "g")},
    **{"mL": (1, "L"), "cL": (10, "L"), "L": (1000, "L")},
    **{"s": (1, "s"), "min": (60, "s"), "h": (3600, "s"), "d": (24 * 3600, "s")},
    **{"bit": (1, "b"), "byte": (8, "b"), "kB": (8000, "b"), "MB": (8_000_000, "b")},
}


def _right(question: str, expected: str) -> bool:
    if asked := re.fullmatch(r"What is (\S+) ([-+*/]) (\S+)\?", question):
        left, right = Fraction(asked[1]), Fraction(asked[3])
        found = {"+": left + right, "-": left - right, "*": left * right}.get(asked[2])
        return Fraction(expected) == (left / right if found is None else found)
    asked = re.fullmatch(r"(?:Convert|What is) (\S+) (\S+) (?:to|in) (\S+)[.?]", question)
    assert asked is not None, question
    amount, unit, wanted = Fraction(asked[1]), asked[2], asked[3]
    value, named = expected.split()
    if unit.startswith("°"):
        freezing = {"°C": Fraction(0), "°F": Fraction(32)}
        degrees = {"°C": Fraction(100), "°F": Fraction(180)}
        share = (amount - freezing[unit]) / degrees[unit]
        return named == wanted and Fraction(value) == freezing[wanted] + share * degrees[wanted]
    (size, kind), (other, same) = _UNITS[unit], _UNITS[wanted]
    return named == wanted and kind == same and Fraction(value) * other == amount * size
