"""`evaluation_test`: what it records, what it refuses, and that it changes nothing else."""

import asyncio
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest

from assay import evaluation_test as offered
from assay.errors import ConfigError
from assay.pytest_plugin import evaluation_test
from assay.pytest_plugin.decorator import EvalOptions, Options, eval_options_of
from assay.stats import GateRule
from assay.types import Endpoint

ROWS = [{"question": "1+1?", "answer": "2"}]


def test_called_directly_it_is_the_plain_function() -> None:
    def judge(messages: object, ground_truth: object, **rest: object) -> tuple[object, ...]:
        return messages, ground_truth, rest

    async def judge_later(messages: object) -> object:
        return messages

    assert evaluation_test(samples=ROWS)(judge) is judge
    assert judge("m", "g", level=3) == ("m", "g", {"level": 3})
    assert asyncio.run(evaluation_test(ROWS)(judge_later)("m")) == "m"


def test_the_options_are_recorded_as_they_were_written() -> None:
    rule = GateRule(minimum=0.9, proven=True)

    @offered("file.jsonl", max_samples=3, endpoints=["mock:echo"], threshold=rule, tags=["slow"])
    def judge(messages: object) -> float:
        return 1.0

    asked = eval_options_of(judge)
    assert asked is not None
    assert (asked.samples, asked.max_samples, asked.threshold) == ("file.jsonl", 3, rule)
    assert (asked.endpoints, asked.tags, asked.batch) == (("mock:echo",), ("slow",), False)
    assert eval_options_of(len) is eval_options_of(None) is None


def test_type_checkers_are_told_of_every_option() -> None:
    assert {each.name for each in fields(EvalOptions)} == set(Options.__annotations__) | {
        "function",
        "signature",
        "samples",
    }


def test_rows_that_can_be_read_once_are_kept() -> None:
    @evaluation_test(row for row in ROWS)
    def judge(messages: object) -> float:
        return 1.0

    asked = eval_options_of(judge)
    assert asked is not None
    assert asked.samples == ROWS


def test_none_is_the_default_of_an_option() -> None:
    # As a wrapper of the decorator passes on what it was not given.
    nothing: Any = dict.fromkeys(("tags", "retries", "repeats", "endpoints", "max_turns"))

    @evaluation_test(ROWS, **nothing)
    def judge(messages: object) -> float:
        return 1.0

    asked = eval_options_of(judge)
    assert asked is not None
    assert (asked.tags, asked.retries, asked.repeats, asked.endpoints) == ((), 0, 1, ())
    assert asked.max_turns is None


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no samples": ({}, "the test has no samples"),
    "a misspelled option": ({"treshold": 1}, "unknown option 'treshold'.*did you mean 'threshold'"),
    "the dataset by a name": ({"dataset": "x.csv"}, "'dataset'.*dataset as the first argument"),
    "an option of no name": ({"xyzzy": 1}, "the options are adapter, agent, batch"),
    "a threshold in words": ({"threshold": "0.5"}, "threshold='0.5' is not a number"),
    "a threshold of True": ({"threshold": True}, "threshold=True is not a number"),
    "a threshold of NaN": ({"threshold": float("nan")}, "threshold=nan is not a number"),
    "both endpoints": ({"endpoint": "mock:echo", "endpoints": ["mock:echo"]}, "not both"),
    "both modes": ({"batch": True, "groupwise": True}, "pass `batch` or `groupwise`"),
    "both environments": ({"environment": "basic", "env_url": "http://h"}, "not both"),
    "a command without address": ({"env_command": "serve"}, "`env_command` needs the `env_url`"),
    "a kind without address": ({"env_kind": "mcp"}, "`env_kind` needs the `env_url`"),
    "a token without address": ({"env_token": "x"}, "`env_token` needs the `env_url`"),
    "a step without address": ({"step_timeout_s": 9}, "`step_timeout_s` needs the `env_url`"),
    "an empty token": (
        {"env_url": "http://h", "env_token": ""},
        "`env_token` is not a non-empty string",
    ),
    "a token of bytes": (
        {"env_url": "http://h", "env_token": b"x"},
        "`env_token` is not a non-empty string",
    ),
    "no time for a step": (
        {"env_url": "http://h", "step_timeout_s": 0},
        "step_timeout_s=0 is not a positive number of seconds",
    ),
    "no endpoint at all": ({"endpoints": []}, "`endpoints` is empty"),
    "one endpoint as several": ({"endpoints": "mock:echo"}, "is not a list"),
    "a misspelled option of None": ({"treshold": None}, "unknown option 'treshold'"),
    "numbers as tags": ({"tags": [1]}, r"tags=\[1\] are not words"),
    "one number as tags": ({"tags": 5}, "tags=5 is not a list"),
    "bytes as tags": ({"tags": b"slow"}, "tags=b'slow' is not a list"),
    "a threshold of infinity": ({"threshold": float("inf")}, "threshold=inf is not a number"),
    "an endless timeout": ({"timeout_s": float("inf")}, "timeout_s=inf is not a positive number"),
    "a word as tags": ({"tags": "slow"}, "tags='slow' is not a list"),
    "something else as endpoint": ({"endpoint": 3}, "3 is not an endpoint"),
    "a negative tolerance": ({"tolerance": -0.1}, "tolerance=-0.1 is not a number of at least 0"),
    "a tolerance in words": ({"tolerance": "0.1"}, "tolerance='0.1' is not a number of at least 0"),
    "one bound": ({"bounds": (1,)}, r"bounds=\(1,\) are not the lowest and the highest score"),
    "bounds the wrong way": ({"bounds": (1, -1)}, "are not the lowest and the highest score"),
    "a bound of infinity": ({"bounds": (0, float("inf"))}, "are not the lowest and the highest"),
    "no repeats": ({"repeats": 0}, "repeats=0 is not an integer of at least 1"),
    "half a sample": ({"max_samples": 0.5}, "max_samples=0.5 is not an integer of at least 1"),
    "no samples allowed": ({"max_samples": 0}, "max_samples=0 is not an integer of at least 1"),
    "no time": ({"timeout_s": 0}, "timeout_s=0 is not a positive number of seconds"),
    "another way with bad rows": ({"on_bad_row": "ignore"}, "neither 'fail' nor 'skip'"),
}


@pytest.mark.parametrize(("options", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_where_it_is_written(
    options: dict[str, Any], message: str
) -> None:
    samples = None if message == "the test has no samples" else ROWS

    with pytest.raises(ConfigError, match=rf"(?s)@evaluation_test: .*{message}"):
        evaluation_test(samples, **options)


@pytest.mark.parametrize("threshold", [1, 0.5, GateRule(minimum=0.5)])
def test_every_kind_of_threshold_is_taken(threshold: object) -> None:
    assert callable(evaluation_test(ROWS, threshold=threshold))


def test_an_endpoint_is_taken_whole_or_by_name() -> None:
    whole = Endpoint(provider="mock", model="echo")

    assert callable(evaluation_test(ROWS, endpoints=[whole, "mock:echo"]))


def test_brackets_are_needed() -> None:
    def judge(messages: object) -> float:
        return 1.0

    with pytest.raises(ConfigError, match="the decorator is used without parentheses"):
        evaluation_test(judge)


@pytest.mark.parametrize("target", [staticmethod(len), int])
def test_only_a_function_can_be_an_evaluation(target: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"is applied to a .*, not to a function"):
        evaluation_test(ROWS)(target)
