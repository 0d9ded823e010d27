"""How a run's end is told, and what it exits with."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli.run_summary import EvalCommandReport, format_failures
from assay.datasets import SkippedRows
from assay.errors import BadRow
from assay.store import RetriedAttempts
from assay.store.result_reader import FailureGroup
from recorded_runs import evaluated, samples

NONE = RetriedAttempts(0, None, 0)
NEXT = ("assay show r", "assay compare OTHER_RUN r")


def ending(
    folder: Path, *, interrupted: bool = False, **scores: float | str | None
) -> EvalCommandReport:
    report = evaluated(folder / "a.db", *samples(**scores))
    report = replace(report, interrupted=interrupted)
    return EvalCommandReport(report, NONE, "assay eval f.py --resume r", NEXT)


def test_a_whole_run_is_0_also_with_samples_that_the_scorer_did_not_judge(tmp_path: Path) -> None:
    told = ending(tmp_path, a=1.0, b=0.0, c=None)

    assert (told.exit_status, told.problem) == (0, None)
    assert told.lines()[0].startswith("score         0.500 [")
    assert told.lines()[-3:] == ["next:", "  assay show r", "  assay compare OTHER_RUN r"]
    assert told.plain()["summary"]["samples"] == 3


def test_reasons_of_results_that_were_not_judged_are_listed(tmp_path: Path) -> None:
    report = evaluated(tmp_path / "a.db", *samples(a=1.0, c=None))
    with report.samples.open_run() as run:
        told = EvalCommandReport.build(report, run, resume="assay eval f.py", next=NEXT)

    start = told.lines().index("reasons for results that were not judged")
    assert told.lines()[start + 1 : start + 3] == ["  1 x because of c", "      such as c? | c"]
    assert told.plain()["not_judged"]["groups"][0]["reason"] == "because of c"
    assert "because of c" in report._repr_html_()


def test_failed_samples_are_3_and_can_be_tried_again(tmp_path: Path) -> None:
    told = ending(tmp_path, a=1.0, b="broken", c="broken")

    assert told.exit_status == told.plain()["exit_status"] == 3
    assert told.problem == (
        "2 failed (2 scorer). Inspect and retry them with:\n"
        "  assay show r --failed\n  assay eval f.py --resume r"
    )
    assert told.plain()["failed"] == 2


@pytest.mark.parametrize("score", [1.0, "broken"])
def test_an_interrupted_run_is_130_whatever_else(score: float | str, tmp_path: Path) -> None:
    told = ending(tmp_path, interrupted=True, a=score)

    assert told.exit_status == 130
    assert "Resume with:\n  assay eval f.py --resume r" in str(told.problem)


def test_a_run_without_a_single_score_is_3(tmp_path: Path) -> None:
    told = ending(tmp_path, a=None, b=None)

    assert told.exit_status == 3
    assert told.problem == "no sample was judged; inspect them with:\n  assay show r"


def test_a_run_of_nothing_is_no_success(tmp_path: Path) -> None:
    told = ending(tmp_path)

    assert told.exit_status == 3
    assert told.problem == "the dataset has no samples; nothing was evaluated"


def test_rows_that_were_skipped_are_told(tmp_path: Path) -> None:
    whole = ending(tmp_path, a=1.0)
    bad = [BadRow("line is not\nJSON", where=f"rows.jsonl:{line}") for line in (2, 3, 4, 5)]
    told = replace(whole, report=replace(whole.report, skipped=SkippedRows(8, 7, bad)))

    assert (
        "not read 7 of 8 rows skipped: rows.jsonl:2: line is not JSON; "
        "rows.jsonl:3: line is not JSON; rows.jsonl:4: line is not JSON; and 4 more run "
    ) in " ".join(" ".join(told.lines()).split())
    assert max(map(len, told.lines()[:8])) <= 80
    assert told.plain()["not_read"] == {"count": 7, "problems": [str(each) for each in bad]}
    assert told.exit_status == 0

    assert not [line for line in whole.lines() if line.startswith("not read")]
    assert whole.plain()["not_read"] == {"count": 0, "problems": []}


@pytest.mark.parametrize(
    ("retried", "lines"),
    [
        (RetriedAttempts(9, 9.0, 9), ["retried       9 failed attempts cost $9.0000 more"]),
        (RetriedAttempts(1, 0.5, 1), ["retried       1 failed attempt cost $0.5000 more"]),
        (
            RetriedAttempts(9, 9.0, 7),
            ["retried       9 failed attempts cost at least $9.0000 more"],
        ),
        (RetriedAttempts(9, None, 0), []),
        (RetriedAttempts(9, 0.0, 9), []),
    ],
)
def test_what_attempts_cost_that_were_tried_again_is_told(
    retried: RetriedAttempts, lines: list[str], tmp_path: Path
) -> None:
    told = replace(ending(tmp_path, a=1.0), retried=retried)

    assert [line for line in told.lines() if line.startswith("retried")] == lines
    assert told.plain()["retried"]["cost_usd"] == retried.cost_usd


def test_the_most_frequent_reasons_are_told_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    groups = (
        FailureGroup("scorer", "KeyError", "'answr'", 7, "a", "What is 2+2?"),
        FailureGroup("endpoint", "EndpointError", f"HTTP 404: {'long ' * 30}end", 2, "b", ""),
    )

    told = replace(ending(tmp_path, a=1.0, b="broken"), failures=groups)

    lines = str(told.problem).splitlines()
    assert lines[:3] == [
        "reasons for failed samples",
        "  7 x scorer: KeyError: 'answr'",
        "      such as What is 2+2? | a",
    ]
    assert lines[3].startswith("  2 x endpoint: EndpointError: HTTP 404: long")
    assert lines[3].endswith("end")
    assert lines[4] == "      such as b"
    assert "1 failed (1 scorer). Inspect and retry" in str(told.problem)
    assert told.plain()["failures"][0]["samples"] == 7


def test_reasons_are_wrapped_at_the_width_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    group = FailureGroup("endpoint", "EndpointError", "word " * 50, 3, "a", "long " * 50)

    lines = format_failures([group], 9)

    assert max(map(len, lines)) <= 80
    assert sum(line.count("word") for line in lines) == 50
    assert lines[-1] == "  6 x for other reasons"
