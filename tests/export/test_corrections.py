"""Corrected answers: written as answers and as the better one of a pair, and counted."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.export import Correction, ExportReport, Selection, export_samples
from assay.export.corrections import NO_ANSWER, find_answer
from assay.types import EvaluateResult, Message, ModelCall, Sample, Status, Trajectory
from make import answered, asked, called, said, sample


def recorded(name: str = "a", score: float | None = 0.0) -> Sample:
    given = sample(
        asked(f"{name}?"),
        said(None, called("look")),
        answered("seen"),
        said("wrong"),
        id=name,
        score=EvaluateResult(score=score),
    )
    assert given.trajectory is not None
    given.trajectory.calls.append(ModelCall(prompt_ids=(1,), completion_ids=(2,)))
    given.tokens, given.loss_mask = [1, 2], [0.0, 1.0]
    return given


def export(
    given: list[Sample | Correction], target: Path, form: str, **chosen: Any
) -> ExportReport:
    report = export_samples(given, target, form, selection=Selection(**chosen))
    assert report.read == report.used + report.left_out.total()
    return report


def rows(target: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in target.read_text().splitlines()]


def test_a_corrected_sample_ends_with_the_new_answer_and_has_no_tokens() -> None:
    made = Correction(recorded(), "right", author="ada").build_corrected()

    assert [message.text for message in made.messages] == ["a?", "", "seen", "right"]
    assert (made.reward, made.status, made.tokens) == (1.0, Status.COMPLETED, [])
    assert made.trajectory is not None
    assert made.trajectory.calls == []
    assert made.metadata["label"] == {"author": "ada"}


def test_the_recorded_sample_is_unchanged() -> None:
    given = recorded()

    Correction(given, "right").build_corrected()

    assert (given.response, given.reward, given.tokens) == ("wrong", 0.0, [1, 2])


def test_a_sample_without_an_answer_gets_one() -> None:
    failed = Sample(id="f", prompt="f?", status=Status.FAILED)

    made = Correction(failed, "right").build_corrected()

    assert [message.text for message in made.messages] == ["f?", "right"]
    assert Correction(failed, "right").build_rejected() is None


@pytest.mark.parametrize("score", [0.0, 1.0, None])
def test_sft_learns_the_corrected_answer(score: float | None, tmp_path: Path) -> None:
    target = tmp_path / "o.jsonl"

    report = export([Correction(recorded(score=score), "right")], target, "trl-sft", min_score=1.0)

    assert rows(target)[0]["completion"][-1]["content"] == "right"
    assert (report.corrected, report.json()["corrected"]) == (1, 1)
    assert "answers corrected by people were used: 1" in report.notes


def test_dpo_prefers_the_corrected_answer_to_the_recorded_one(tmp_path: Path) -> None:
    target = tmp_path / "o.jsonl"
    # Another rollout of the same input, which is better than the recorded one.
    other = recorded(score=0.5)

    report = export([Correction(recorded(score=1.0), "right"), other], target, "trl-preference")

    (row,) = rows(target)
    assert row["chosen"][-1]["content"] == "right"
    assert row["rejected"][-1]["content"] == "wrong"
    assert (report.rows, report.used, report.corrected) == (1, 1, 1)
    assert report.left_out == {"the only answer to its input": 1}


def test_a_pair_needs_a_recorded_answer_that_differs(tmp_path: Path) -> None:
    silent = Sample(id="s", prompt="s?", trajectory=Trajectory(messages=[asked("s?")]))
    given: list[Sample | Correction] = [Correction(silent, "x"), Correction(recorded(), "wrong")]

    report = export(given, tmp_path / "o.jsonl", "trl-preference")

    assert report.left_out == {NO_ANSWER: 1, "the corrected answer is the recorded one": 1}
    assert report.rows == 0


def test_the_limit_counts_a_corrected_pair_once(tmp_path: Path) -> None:
    given: list[Sample | Correction] = [Correction(recorded(name), "right") for name in "abc"]

    report = export(given, tmp_path / "o.jsonl", "trl-preference", limit=2)

    assert (report.rows, report.used) == (2, 2)
    assert report.left_out == {"beyond the limit": 1}


def test_formats_of_whole_samples_keep_what_happened(tmp_path: Path) -> None:
    target = tmp_path / "o.jsonl"

    report = export([Correction(recorded(), "right")], target, "sample")

    assert Sample.from_dict(rows(target)[0]).response == "wrong"
    assert report.corrected == 0


def test_the_answer_is_the_last_text_of_the_assistant() -> None:
    turns = [asked("a"), said("b"), said(None, called("t")), Message(role="user", content="c")]

    assert find_answer(turns) == 1
    assert find_answer(turns[:1]) is None
