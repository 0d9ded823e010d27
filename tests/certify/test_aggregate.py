"""A run counted: repeats averaged, what is missing unscored, and costs known or not."""

import math
from dataclasses import replace

from assay.certify.aggregate import RecordedAgentCall, RunAggregate, _count_retried_requests
from assay.certify.criteria import CriterionStatus
from assay.certify.criterion_decisions import Timings
from assay.certify.measurement import Measurement
from assay.types import ModelCall, Sample, Trajectory
from bars import latency_bar, score_bar

BARS = (score_bar("right"), latency_bar())


def call(
    right: float | None = 1.0, cost: float | None = 0.5, **fields: object
) -> RecordedAgentCall:
    scores = {} if right is None else {"right": right}
    measured = Measurement.model_validate({"seconds": 0.1, "scores": scores, **fields})
    return RecordedAgentCall("a", measured, cost, None)


def counted(*samples: list[RecordedAgentCall], repeats: int = 1) -> RunAggregate:
    tally = RunAggregate(repeats)
    for each in samples:
        tally.add(each, BARS)
    return tally


def test_repeats_are_averaged_before_samples_are() -> None:
    tally = counted([call(1.0), call(0.0)], [call(1.0), call(1.0)], repeats=2)

    assert tally.scores == {"right": [0.5, 1.0]}
    assert tally.seconds == [[0.1, 0.1], [0.1, 0.1]]


def test_a_sample_with_one_unscored_repeat_is_unscored() -> None:
    broken = call(None, problems={"right": "the judge is away"})

    tally = counted([call(1.0), broken], [call(1.0), call(1.0)], repeats=2)
    outcome = tally.outcome(BARS[0], Timings([]))

    assert (outcome.samples, outcome.unscored, outcome.status) == (1, 1, CriterionStatus.ERROR)
    assert outcome.reason == "1 of 2 samples could not be scored: the judge is away"


def test_what_was_never_measured_is_unscored_with_its_failure() -> None:
    tally = counted([RecordedAgentCall("a", None, None, "the disk is full")], [])

    assert tally.unscored == {"right": 2}
    assert tally.why == {"right": "the disk is full"}
    assert tally.seconds == []


def test_a_failure_of_the_agent_takes_for_ever_and_is_counted() -> None:
    tally = counted([call(0.0, seconds=None, agent_error="ValueError")], [call()])

    assert tally.seconds == [[math.inf], [0.1]]
    assert tally.agent_errors == 1
    assert tally.outcome(BARS[0], Timings([])).agent_errors == 1


def test_an_answer_from_a_cache_has_no_time() -> None:
    tally = counted([call(cached=True)], [call()])

    assert (tally.cached, tally.seconds) == (1, [[0.1]])


def test_costs_are_known_only_if_every_part_is() -> None:
    known = counted([call(judge_cost_usd=0.25)], [call()])
    unknown = counted([call(judge_cost_usd=None)], [call(cost=None)])

    assert (known.cost.agent_usd, known.cost.judge_usd) == (1.0, 0.25)
    assert (unknown.cost.agent_usd, unknown.cost.judge_usd) == (None, None)


def test_the_models_that_answered_are_named() -> None:
    tally = counted([call(agent_models=("m-1",), judge_models=("j-2",), judge_calls=2)], [call()])

    assert (tally.agent_models, tally.judge_models, tally.judge_calls) == ({"m-1"}, {"j-2"}, 2)


def test_requests_that_were_sent_again_are_counted() -> None:
    calls = [ModelCall(attempts=3), ModelCall(), ModelCall(attempts=2)]
    shown = Sample(prompt="?", trajectory=Trajectory(messages=[], calls=calls))
    unknown = Sample(prompt="?", trajectory=Trajectory(messages=[]))

    assert [
        _count_retried_requests(shown),
        _count_retried_requests(unknown),
        _count_retried_requests(Sample(prompt="?")),
    ] == [3, None, None]
    again = replace(call(), retried_requests=3)
    assert counted([call()]).retried_requests is None
    assert counted([call()], [again], [again]).retried_requests == 6


def test_samples_that_ask_the_same_count_once() -> None:
    tally = RunAggregate(1, same_as={"c": "a"})
    for name, score in (("a", 1.0), ("b", 1.0), ("c", 0.0)):
        tally.add([replace(call(score), sample_id=name)], BARS)

    assert tally.scores == {"right": [0.5, 1.0]}
    assert tally.seconds == [[0.1, 0.1], [0.1]]
