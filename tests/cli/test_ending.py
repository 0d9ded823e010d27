"""How a run's end is told, and what it exits with."""

from dataclasses import replace
from pathlib import Path

import pytest

from assay.cli.ending import Ending
from recorded_runs import evaluated, samples

NEXT = ("assay show r", "assay compare OTHER_RUN r")


def ending(folder: Path, *, interrupted: bool = False, **scores: float | str | None) -> Ending:
    report = evaluated(folder / "a.db", *samples(**scores))
    report = replace(report, interrupted=interrupted)
    return Ending(report, "assay eval f.py --resume r", NEXT)


def test_a_whole_run_is_0_also_with_samples_that_the_scorer_did_not_judge(tmp_path: Path) -> None:
    told = ending(tmp_path, a=1.0, b=0.0, c=None)

    assert (told.exit_status, told.problem) == (0, None)
    assert told.lines()[0].startswith("score         0.500 [")
    assert told.lines()[-3:] == ["next:", "  assay show r", "  assay compare OTHER_RUN r"]
    assert told.plain()["summary"]["samples"] == 3


def test_failed_samples_are_3_and_can_be_tried_again(tmp_path: Path) -> None:
    told = ending(tmp_path, a=1.0, b="broken", c="broken")

    assert told.exit_status == told.plain()["exit_status"] == 3
    assert told.problem == (
        "2 failed (2 scorer). See why, and try them again, with:\n"
        "  assay show r --failed\n  assay eval f.py --resume r"
    )
    assert told.plain()["failed"] == 2


@pytest.mark.parametrize("score", [1.0, "broken"])
def test_an_interrupted_run_is_130_whatever_else(score: float | str, tmp_path: Path) -> None:
    told = ending(tmp_path, interrupted=True, a=score)

    assert told.exit_status == 130
    assert "Go on with:\n  assay eval f.py --resume r" in str(told.problem)


def test_a_run_of_nothing_is_no_success(tmp_path: Path) -> None:
    told = ending(tmp_path)

    assert told.exit_status == 3
    assert told.problem == "the dataset has no samples: nothing was evaluated"
