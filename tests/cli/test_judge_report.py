"""What is told of a judged run: every sample is counted somewhere."""

import asyncio
from typing import Any, cast

from assay.cli.judge_report import JudgeReport
from assay.errors import EndpointError
from assay.scorers import Calibrator, Label, judge
from assay.scorers.judges.vertex_metrics import parse_vertex_metrics
from assay.scorers.judges.vertex_scorer import VertexJudge
from assay.scorers.judges.vertex_service import RubricVerdict, VertexAnswer, VertexService
from assay.types import Boundary, EvaluateResult, Failure, Message, Sample
from judge_answers import DONE, conversation, graded
from make import said
from scripted import Scripted


def account_of(
    *panel: list[Message | Exception],
    labels: tuple[Label, ...] = (),
    samples: int = 1,
    **options: Any,
) -> JudgeReport:
    """The account of samples that a panel judged; a member says its replies in turn."""
    scorer = judge(DONE, [Scripted(*replies) for replies in panel], **options)
    account = JudgeReport(scorer, Calibrator(labels, 0.5) if labels else None)
    for number in range(samples):
        sample = conversation(id=f"s{number}")
        sample.score = asyncio.run(scorer(sample))
        account.add(sample)
    return account


def test_agreement_evidence_and_calls_are_told() -> None:
    replies = [graded("x", "All done.", "Never said.", done=1), graded(done=0)]

    account = account_of([*replies], votes=2)

    lines = "\n".join(account.lines())
    assert "judges        mock:scripted (2 votes each)" in lines
    assert "agreement     done 0.000 over 1 sample, votes split on 1 sample" in lines
    assert "evidence      2 quotes, 1 not found in the transcript" in lines
    assert "judge calls   2" in lines
    assert "judge cost    unknown (at least $0.0000; 2 calls unknown)" in lines
    assert account.plain()["agreement"] == {"done": {"mean": 0.0, "samples": 1, "split": 1}}


def test_each_member_of_a_panel_has_its_mean() -> None:
    account = account_of([graded(done=1)], [graded(done=0.5)])

    assert account.panel == {"mock:scripted #1": 1.0, "mock:scripted #2": 0.5}
    assert "mock:scripted #2: mean score 0.500" in "\n".join(account.lines())


def test_every_sample_is_judged_or_counted_as_left_out() -> None:
    unreadable: list[Message | Exception] = [said("?")] * 3
    account = account_of([graded(done=1), *unreadable, graded(done=None)], samples=3)
    failed = conversation(id="failed")
    failed.failure = Failure.of(EndpointError("down"), Boundary.SCORER)
    account.add(failed)
    account.add(Sample(id="bare"))

    plain = account.plain()
    counts = [plain[name] for name in ("judged", "not_applicable", "unreadable", "failed")]
    assert counts == [1, 1, 2, 1]
    assert not account.complete
    assert account.problems[1:] == ["failed (Do it.): down", "bare: no result"]
    lines = " ".join(" ".join(account.lines()).split())
    assert (
        "1 to which the rubric does not apply, 2 that could not be judged, 1 that failed" in lines
    )
    assert "judge calls 5, 2 repeated for an invalid answer" in lines


def test_a_vote_that_is_missing_is_told() -> None:
    account = account_of([graded(done=1)], [graded(done=1)], [EndpointError("down")])

    assert account.partly_usable == 1
    assert "judged without all votes" in "\n".join(account.lines())
    assert "judge calls   2, 1 more failed" in "\n".join(account.lines())
    assert account.complete


def test_only_the_first_problems_are_named() -> None:
    account = account_of([], samples=0)
    for number in range(20):
        sample = conversation(id=str(number))
        sample.score = EvaluateResult(error="unreadable")
        account.add(sample)

    assert (len(account.problems), account.unreadable) == (5, 20)


def test_calibration_is_told_with_what_it_left_out() -> None:
    labels = (Label("s0", 1.0), Label("gone", 0.0))

    account = account_of([graded(done=1), graded(done=0)], labels=labels, samples=2)

    lines = "\n".join(account.lines())
    assert "calibration   score, 1 labelled samples" in lines
    assert "labels        1 without a sample" in lines
    assert "labels        1 samples have no label" in lines
    calibration = account.plain()["calibration"]
    assert calibration["labels_without_sample"] == ["gone"]
    assert calibration["samples_without_label"] == 1


def test_verdicts_of_vertex_are_told_in_place_of_quotes() -> None:
    met = RubricVerdict("adds up", True, "it does")
    answer = VertexAnswer(0.5, verdicts=(met, RubricVerdict("is polite", False, "curt")))

    class Service:
        name = "vertex:nowhere"

        def evaluate(self, row: Any, specs: list[str]) -> dict[str, VertexAnswer]:
            return dict.fromkeys(specs, answer)

    scorer = VertexJudge(parse_vertex_metrics("safety"), cast(VertexService, Service()))
    account = JudgeReport(scorer)
    sample = conversation(id="s")
    sample.score = asyncio.run(scorer(sample))
    account.add(sample)

    lines = "\n".join(account.lines())
    assert "judges        vertex:nowhere" in lines
    assert "verdicts      2 rubrics, 1 not met" in lines
    assert "evidence" not in lines
    assert account.plain()["verdicts"] == {"rubrics": 2, "not_met": 1}
