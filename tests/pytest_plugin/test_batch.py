"""Judging several results in one call: lists in, a list of the same length out."""

import os
import signal
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import pytest

from assay.pytest_plugin.batch import (
    GroupMember,
    GroupResults,
    group_members,
    iterate_members,
    judge_groups,
)
from assay.pytest_plugin.scorer_call import UserFunction
from assay.scorers import read_call_spec
from assay.types import EvaluateResult, Failure, Message, Sample


def samples(*names: str) -> list[Sample]:
    return [Sample(id=name, prompt=name, ground_truth=name) for name in names]


def group(*names: str, endpoint: str | None = None) -> list[GroupMember]:
    return list(iterate_members(endpoint, samples(*names)))


def judged(
    function: Callable[..., Any], *groups: list[GroupMember], endpoints: bool = False
) -> GroupResults:
    given = ("endpoints",) if endpoints else ()
    user = UserFunction(function, read_call_spec(function, given=given), {}, endpoints)
    return judge_groups(user, groups, concurrency=2)


def said(found: GroupResults, member: GroupMember) -> float | str | None:
    try:
        return found.of(member.endpoint, member.sample).score
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_each_group_is_one_call_with_lists() -> None:
    calls: list[tuple[object, object]] = []

    def judge(messages: list[list[Message]], ground_truth: list[str]) -> list[float]:
        calls.append((len(messages), ground_truth))
        return [0.5] * len(ground_truth)

    groups = [group("a", "b"), group("c")]
    found = judged(judge, *groups)

    assert sorted(calls, key=str) == [(1, ["c"]), (2, ["a", "b"])]
    assert [said(found, member) for each in groups for member in each] == [0.5, 0.5, 0.5]


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs signal masks")
def test_ctrl_c_does_not_wait_for_a_call_that_blocks() -> None:
    release, ended = Event(), list[bool]()

    def judge(ground_truth: list[str]) -> list[float]:
        # The main thread blocks the signal, so that the system hands it to this one.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        release.wait(0.2)  # until the main thread waits for this call
        os.kill(os.getpid(), signal.SIGINT)
        ended.append(release.wait(5))
        return [1.0]

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with pytest.raises(KeyboardInterrupt):
            judged(judge, group("a"))
        assert not ended
    finally:
        release.set()
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_an_async_function_is_awaited() -> None:
    async def judge(sample: list[Sample]) -> list[bool]:
        return [each.id == "a" for each in sample]

    members_ = group("a", "b")
    found = judged(judge, members_)

    assert [said(found, member) for member in members_] == [1.0, 0.0]


def test_all_endpoints_of_a_sample_are_told_apart() -> None:
    def judge(row: list[Sample], endpoints: list[str]) -> list[bool]:
        assert [each.metadata["endpoint"] for each in row] == endpoints
        return [endpoint == "y" for endpoint in endpoints]

    everything = group("a", "b", endpoint="x") + group("a", "b", endpoint="y")
    found = judged(judge, *group_members(everything, lambda each: each.sample.id), endpoints=True)

    assert [said(found, member) for member in everything] == [0.0, 0.0, 1.0, 1.0]


def test_a_failing_call_costs_the_results_of_its_group_only() -> None:
    def judge(ground_truth: list[str]) -> list[float]:
        if "b" in ground_truth:
            raise KeyError("b")
        return [1.0]

    groups = [group("a"), group("b")]
    found = judged(judge, *groups)

    assert said(found, groups[0][0]) == 1.0
    assert said(found, groups[1][0]) == "KeyError: 'b'"


def test_a_failed_assertion_is_a_verdict_on_its_group_only() -> None:
    def judge(ground_truth: list[str]) -> list[float]:
        assert "b" not in ground_truth
        return [1.0]

    async def judge_later(ground_truth: list[str]) -> list[float]:
        return judge(ground_truth)

    for function in (judge, judge_later):
        groups = [group("a"), group("b", "c")]
        found = judged(function, *groups)

        assert said(found, groups[0][0]) == 1.0
        for member in groups[1]:
            result = found.of(None, member.sample)
            assert (result.score, result.is_score_valid) == (0.0, True)
            assert (result.reason or "").startswith("assert 'b' not in ['b', 'c']")


RETURNED: Sequence[tuple[object, str]] = [
    ([1.0], "called with 2 samples and returned 1, not a list of 2 results"),
    ([1.0, 1.0, 1.0], "returned 3"),
    (None, "returned None"),
    (0.5, "returned a float"),
    ("ab", "returned a str"),
]


@pytest.mark.parametrize(("value", "message"), RETURNED)
def test_anything_but_a_list_of_that_length_is_a_fault(value: object, message: str) -> None:
    members_ = group("a", "b")
    found = judged(lambda messages: value, members_)

    assert all(message in str(said(found, member)) for member in members_)


def test_one_bad_entry_leaves_the_others() -> None:
    members_ = group("a", "b", "c")
    result = EvaluateResult(score=0.25)
    found = judged(lambda messages: [None, result, float("nan")], members_)

    assert "the scorer returned None" in str(said(found, members_[0]))
    assert said(found, members_[1]) == 0.25
    assert "returned nan" in str(said(found, members_[2]))


def test_samples_in_another_order_are_not_mixed_up() -> None:
    def judge(sample: list[Sample]) -> list[Sample]:
        for each in sample:
            each.score = EvaluateResult(score=1.0)
        return sample[::-1]

    members_ = group("a", "b")
    found = judged(judge, members_)

    assert "the function returned sample 'b' in the place of 'a'" in str(said(found, members_[0]))


def test_rollouts_of_one_sample_in_another_order_keep_their_own_scores() -> None:
    def judge(rows: list[Sample], endpoints: list[str]) -> list[Sample]:
        for row, endpoint in zip(rows, endpoints, strict=True):
            row.score = EvaluateResult(score=float(endpoint == "good"))
        return sorted(rows, key=lambda row: -(row.reward or 0.0))

    members_ = [*group("a", endpoint="bad"), *group("a", endpoint="good")]
    found = judged(judge, members_, endpoints=True)

    assert [said(found, member) for member in members_] == [0.0, 1.0]


def test_samples_that_failed_are_not_judged_and_no_earlier_score_is_shown() -> None:
    broken, whole = samples("broken", "whole")
    broken.failure = Failure(boundary="endpoint", kind="Timeout", message="too slow")
    whole.score = EvaluateResult(is_score_valid=False, reason="judged together")

    (member,) = iterate_members(None, [broken, whole])

    assert (member.sample.id, member.sample.score) == ("whole", None)
