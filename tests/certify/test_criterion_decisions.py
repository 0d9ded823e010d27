"""From measurements to outcomes: the point, the proof, crashes, caches and times without end."""

import json
import math

import pytest

from assay.certify.criteria import CriterionOutcome, CriterionStatus, EvidenceLevel
from assay.certify.criterion_decisions import (
    Counts,
    Timings,
    compute_latency_figures,
    decide_latency,
    decide_score,
)
from bars import latency_bar, score_bar

PASSED, FAILED, ERROR = CriterionStatus
NONE = Counts()


def scored(right: int, n: int, threshold: float = 0.9, **fields: str) -> CriterionOutcome:
    bar = score_bar(threshold=threshold, **fields)
    return decide_score(bar, [1.0] * right + [0.0] * (n - right), NONE)


@pytest.mark.parametrize(
    ("right", "n", "status", "evidence"),
    [
        (30, 30, PASSED, EvidenceLevel.PROVEN),
        (28, 28, PASSED, EvidenceLevel.INCONCLUSIVE),
        (9, 10, PASSED, EvidenceLevel.INCONCLUSIVE),
        (8, 10, FAILED, EvidenceLevel.INCONCLUSIVE),
        (15, 30, FAILED, EvidenceLevel.REFUTED),
    ],
)
def test_the_point_decides_and_the_evidence_says_how_sure_that_is(
    right: int, n: int, status: CriterionStatus, evidence: EvidenceLevel
) -> None:
    outcome = scored(right, n)

    assert (outcome.status, outcome.evidence, outcome.samples) == (status, evidence, n)
    assert outcome.value == right / n


def test_a_gate_that_wants_proof_fails_what_is_only_likely() -> None:
    assert scored(30, 30, gate="proven").status is PASSED

    likely = scored(28, 28, gate="proven")

    assert likely.status is FAILED
    assert likely.reason == (
        "mean 1.000 reaches 0.900, which is not proven: with 95 % confidence it is at least 0.899"
    )


def test_low_values_are_good_where_the_direction_says_so() -> None:
    bar = score_bar("error_rate", 0.05, direction="min")

    assert decide_score(bar, [0.0] * 59, NONE).evidence is EvidenceLevel.PROVEN
    assert decide_score(bar, [0.0] * 58, NONE).evidence is EvidenceLevel.INCONCLUSIVE
    bad = decide_score(bar, [1.0] * 10, NONE)
    assert (bad.status, bad.evidence) == (FAILED, EvidenceLevel.REFUTED)
    assert bad.reason == "mean 1.000 is above 0.050; refuted"


def test_adding_floats_does_not_fail_what_is_met() -> None:
    above = decide_score(score_bar("rate", 0.7, direction="min"), [0.7] * 10, NONE)
    below = decide_score(score_bar("share", 0.1 + 0.2), [0.3] * 10, NONE)

    assert above.status is below.status is PASSED


def test_samples_that_could_not_be_scored_make_it_an_error_whatever_the_others_say() -> None:
    counts = Counts(unscored=1, agent_errors=2, why_unscored="the judge is away")

    outcome = decide_score(score_bar(), [1.0] * 99, counts)

    assert (outcome.status, outcome.evidence) == (ERROR, None)
    assert (outcome.value, outcome.unscored, outcome.agent_errors) == (1.0, 1, 2)
    assert outcome.reason == "1 of 100 samples could not be scored: the judge is away"


def test_no_score_at_all_has_no_value() -> None:
    outcome = decide_score(score_bar(), [], Counts(unscored=3))

    assert (outcome.status, outcome.value, outcome.samples) == (ERROR, None, 0)


def test_a_latency_is_no_score() -> None:
    with pytest.raises(ValueError, match="not a score"):
        decide_score(latency_bar(), [1.0], NONE)


def timed(*milliseconds: float, limit: float = 1000, statistic: str = "p95") -> CriterionOutcome:
    timings = Timings([[value / 1000] for value in milliseconds])
    return decide_latency(latency_bar(limit, statistic), timings, agent_errors=0)


def test_a_percentile_is_a_time_that_occurred() -> None:
    outcome = timed(*range(1, 101), limit=95)

    assert outcome.value == pytest.approx(95)
    assert (outcome.status, outcome.evidence) == (PASSED, EvidenceLevel.INCONCLUSIVE)
    assert outcome.at_most == pytest.approx(99)
    assert timed(*range(1, 101), limit=99).evidence is EvidenceLevel.PROVEN
    assert timed(*range(1, 101), limit=50).evidence is EvidenceLevel.REFUTED


def test_fewer_than_59_samples_prove_nothing_about_a_p95() -> None:
    few = timed(*[1.0] * 58)

    assert (few.status, few.evidence, few.at_most) == (PASSED, EvidenceLevel.INCONCLUSIVE, None)
    assert few.reason.endswith("the samples give no bound with 95 % confidence")
    assert timed(*[1.0] * 59).evidence is EvidenceLevel.PROVEN


def test_a_call_that_never_came_back_takes_for_ever() -> None:
    outcome = timed(*[1.0] * 90, *[math.inf] * 10)

    assert (outcome.status, outcome.value) == (FAILED, None)
    assert "value" in outcome.infinite
    assert outcome.reason.startswith("p95 never is above 1000.000 ms")
    assert json.loads(outcome.model_dump_json())["value"] is None


def test_failing_fast_does_not_make_an_agent_faster() -> None:
    slow = timed(*[900.0] * 60, limit=1000)
    crashing = timed(*[900.0] * 50, *[math.inf] * 10, limit=1000)

    assert (slow.status, crashing.status) == (PASSED, FAILED)


@pytest.mark.parametrize(
    ("statistic", "status"),
    [("mean", PASSED), ("p50", PASSED), ("p95", FAILED), ("max", FAILED)],
)
def test_the_statistic_is_the_whole_decision(statistic: str, status: CriterionStatus) -> None:
    times = [10.0] * 90 + [500.0] * 10

    assert timed(*times, limit=100, statistic=statistic).status is status


def test_the_longest_time_there_is_can_be_refuted_but_not_proven() -> None:
    assert timed(*[1.0] * 500, statistic="max").evidence is EvidenceLevel.INCONCLUSIVE
    assert timed(2000.0, statistic="max").evidence is EvidenceLevel.REFUTED
    assert timed(1.0, math.inf, statistic="mean").evidence is EvidenceLevel.REFUTED


def test_answers_from_a_cache_are_no_times() -> None:
    timings = Timings([[0.001]] * 60, cached=3)

    outcome = decide_latency(latency_bar(), timings, agent_errors=0)

    assert (outcome.status, outcome.unscored) == (ERROR, 3)
    assert "came from a cache" in outcome.reason
    assert decide_latency(latency_bar(), Timings([]), agent_errors=0).status is ERROR


def test_repeats_of_a_sample_count_once_towards_the_bound() -> None:
    repeated = Timings([[0.001] * 10] * 58)

    outcome = decide_latency(latency_bar(), repeated, agent_errors=0)

    assert (outcome.samples, outcome.evidence) == (58, EvidenceLevel.INCONCLUSIVE)


def test_figures_say_what_failed_and_how_it_was_measured() -> None:
    timings = Timings([[0.01]] * 98 + [[math.inf], [0.5]], concurrency=4, warmup=2)

    figures = compute_latency_figures(timings, "p95")

    assert (figures.p50, figures.p99, figures.max) == (10, 500, None)
    assert figures.infinite == ("max", "mean")
    assert (figures.samples, figures.failed) == (100, 1)
    assert (figures.concurrency, figures.warmup) == (4, 2)
    assert compute_latency_figures(Timings([]), "p95").p50 is None
