"""The report of a recorded run, as commands and pages show it."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from assay.runner import RunReport, build_run_report, list_worst, run_report
from assay.runner.run_report import normalize_reason
from assay.store import RunSpec, Store
from assay.types import EvaluateResult, Sample, Status
from recorded_runs import conversation, record, samples


def report_of(store: Path, **options: Any) -> RunReport:
    with Store.open(store) as opened:
        return build_run_report(opened.run(), **options)


def judged(name: str, score: float, reason: str | None) -> Sample:
    return conversation(name, metadata={"score": score, "reason": reason})


@pytest.mark.parametrize(
    ("reason", "normal"),
    [
        ("the answer is '5', not '4'", "the answer is '…', not '…'"),
        ('the response lacks "it\'s 12"', "the response lacks '…'"),
        ("12 words,\n the expected answer has 3.5", "N words, the expected answer has N"),
        ("it doesn't say who wasn't there", "it doesn't say who wasn't there"),
        ("an 'unclosed quote of 7", "an 'unclosed quote of N"),
        ("`a` and “b”", "'…' and '…'"),
    ],
)
def test_reasons_are_equal_without_numbers_and_quoted_values(reason: str, normal: str) -> None:
    assert normalize_reason(reason) == normal


def test_low_scores_are_grouped_by_reason_and_the_costliest_comes_first(tmp_path: Path) -> None:
    record(
        tmp_path / "a.db",
        judged("good", 1.0, "the answer is '4'"),
        judged("near", 0.9, "too long"),
        judged("close", 0.9, "too long"),
        judged("far", 0.9, "too long"),
        judged("five", 0.5, "the answer is '5', not '4'"),
        judged("six", 0.0, "the answer is '6', not '4'"),
        judged("mute", 0.8, None),
    )

    low = report_of(tmp_path / "a.db").low_scores

    assert (low.best, low.results, low.read, low.others) == (1.0, 6, 6, 0)
    assert [(group.reason, group.results) for group in low.groups] == [
        ("the answer is '…', not '…'", 2),
        ("too long", 3),
        (None, 1),
    ]
    wrong = low.groups[0]
    assert (wrong.mean, wrong.example, wrong.label) == (0.25, "six", "six?")
    assert wrong.example_reason == "the answer is '6', not '4'"


def test_results_that_were_not_judged_are_grouped_by_reason(tmp_path: Path) -> None:
    def give_up(sample: Sample) -> EvaluateResult:
        number = int(sample.id)
        if number == 0:
            return EvaluateResult(score=1.0)
        reason = f"the judge refused question {number}" if number < 4 else "no quote"
        return EvaluateResult(score=0.0, is_score_valid=False, reason=reason)

    record(tmp_path / "a.db", *(conversation(str(n)) for n in range(5)), score_fn=give_up)

    unjudged = report_of(tmp_path / "a.db").not_judged

    assert (unjudged.results, unjudged.read) == (4, 4)
    assert [(group.reason, group.results, group.mean) for group in unjudged.groups] == [
        ("the judge refused question N", 3, None),
        ("no quote", 1, None),
    ]
    assert unjudged.title == "reasons for results that were not judged"


def test_results_that_were_never_scored_have_no_reasons(tmp_path: Path) -> None:
    def give_up(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=0.0, is_score_valid=False)

    record(tmp_path / "a.db", *samples(a=1.0), score_fn=give_up)

    unjudged = report_of(tmp_path / "a.db").not_judged

    assert (unjudged.results, unjudged.groups) == (1, ())


def test_a_reason_that_occurs_once_is_kept_as_it_is(tmp_path: Path) -> None:
    record(tmp_path / "a.db", judged("a", 0.0, "got 'x', not 3"))

    (group,) = report_of(tmp_path / "a.db").low_scores.groups

    assert group.reason == group.example_reason == "got 'x', not 3"


def test_reasons_beyond_the_lowest_results_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_report, "MAX_REASONS_READ", 8)
    kinds = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota")
    scored = [judged(kind, number / 10, kind) for number, kind in enumerate(kinds)]
    record(tmp_path / "a.db", *scored)

    low = report_of(tmp_path / "a.db").low_scores

    assert (low.results, low.read, low.others) == (9, 8, 3)
    assert [group.reason for group in low.groups] == list(kinds[:5])


def test_each_repeat_with_a_low_score_is_counted(tmp_path: Path) -> None:
    def fail_second(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=float(sample.rollout_id != "a#1"), reason="unstable")

    record(tmp_path / "a.db", *samples(a=1.0), repeats=3, score_fn=fail_second)

    report = report_of(tmp_path / "a.db")

    (group,) = report.low_scores.groups
    assert (group.results, group.example, group.repeat) == (1, "a", 1)
    assert report.samples[0].name == "a#1"


def test_the_best_score_of_a_scale_is_not_low(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(a=5.0, b=1.0), bounds=(1, 5))

    low = report_of(tmp_path / "a.db").low_scores

    assert (low.best, low.results) == (5.0, 1)


def test_on_an_unknown_scale_the_best_score_of_the_run_is_not_low(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(a=-3.0, b=7.5, c=7.5))

    low = report_of(tmp_path / "a.db").low_scores

    assert (low.best, low.results) == (7.5, 1)


def test_the_worst_samples_are_listed_without_those_of_the_best_score(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(best=5.0, low=1.0, broken="broken", fair=3.0), bounds=(1, 5))

    with Store.open(tmp_path / "a.db") as store:
        run = store.run()
        summary = build_run_report(run).summary
        worst = list_worst(run, limit=9, summary=summary)
        lowest = list_worst(run, limit=9)

    assert [each.name for each in worst] == ["broken", "low", "fair"]
    assert [each.name for each in lowest] == ["broken", "low", "fair", "best"]


def test_where_low_scores_are_good_high_ones_have_reasons(tmp_path: Path) -> None:
    async def write(store: Store) -> None:
        config = {"direction": "min"}
        run = store.start_run(
            RunSpec(id="r", name="words", config=config, config_fingerprint="f", dataset="d")
        )
        async with run.writer() as writer:
            for sample in samples(short=0.0, long=1.0, longer=2.0):
                score = EvaluateResult(score=sample.metadata["score"], reason="too long")
                done = {"score": score, "status": Status.COMPLETED}
                await writer.record(sample.id, sample.model_copy(update=done))

    with Store.open(tmp_path / "a.db") as store:
        asyncio.run(write(store))

    report = report_of(tmp_path / "a.db")

    (group,) = report.low_scores.groups
    assert (group.results, group.mean, group.example) == (2, 1.5, "longer")
    assert report.low_scores.title == "reasons for scores above 0.000"
    assert [sample.name for sample in report.samples] == ["longer", "long", "short"]


def test_a_sum_of_weights_that_is_almost_the_best_score_is_not_low(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(a=0.1 * 3 + 0.7 - 1e-16, b=1.0))

    assert report_of(tmp_path / "a.db").low_scores.results == 0


def test_failed_samples_are_grouped_apart_from_low_scores(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(bad=0.0, broken="broken", unjudged=None))

    report = report_of(tmp_path / "a.db")

    assert [group.kind for group in report.failures] == ["RuntimeError"]
    assert [group.reason for group in report.low_scores.groups] == ["because of bad"]
    assert report.failed == 1
    assert [sample.name for sample in report.samples] == ["broken", "bad", "unjudged"]


def test_only_failed_samples_are_listed_on_request(tmp_path: Path) -> None:
    record(tmp_path / "a.db", *samples(bad=0.0, broken="broken"))

    report = report_of(tmp_path / "a.db", failed_only=True)

    assert [sample.name for sample in report.samples] == ["broken"]


def test_plain_values_are_json(tmp_path: Path) -> None:
    run = record(tmp_path / "a.db", *samples(bad=0.0, good=1.0, broken="broken"))

    plain = json.loads(json.dumps(report_of(tmp_path / "a.db", limit=1).plain(), allow_nan=False))

    assert set(plain) == {
        *("run", "summary", "retried", "replay", "failures", "labels", "low_scores", "not_judged"),
        *("training", "samples"),
    }
    assert (plain["run"]["id"], plain["run"]["label"]) == (run, "eval")
    assert plain["low_scores"]["groups"][0]["example"] == "bad"
    assert [sample["id"] for sample in plain["samples"]] == ["broken"]
    assert plain["training"] is None
