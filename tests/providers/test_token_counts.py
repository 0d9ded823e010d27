"""Token ids and logprobs, in the spellings of different servers."""

from typing import Any

import pytest

from assay.providers.prices import Price
from assay.providers.token_counts import (
    completion_ids,
    drop_absurd_counts,
    prompt_ids,
    read_logprobs,
    read_openai_usage,
)
from assay.types import Usage


def content(*pairs: tuple[str, Any]) -> dict[str, Any]:
    entries = [{"token": token, "logprob": value} for token, value in pairs]
    return {"logprobs": {"content": entries}}


def test_ids_given_as_such_come_first() -> None:
    choice = {"token_ids": [7, 8], **content(("token_id:1", -1.0), ("token_id:2", -1.0))}

    assert completion_ids(choice) == [7, 8]


def test_ids_spelled_as_tokens_are_read() -> None:
    assert completion_ids(content(("token_id:15", -1.0), ("token_id:0", -0.5))) == [15, 0]


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"token_ids": None},
        {"token_ids": "12"},
        {"token_ids": [1, "2"]},
        {"token_ids": [True]},
        content(("Hello", -1.0)),
        content(("token_id:1", -1.0), ("Hello", -1.0)),
        content(("token_id:x", -1.0)),
        content(("token_id:99999999999999", -1.0)),
        {"logprobs": {"content": [5]}},
    ],
)
def test_ids_that_are_not_all_there_are_unknown(choice: dict[str, Any]) -> None:
    assert completion_ids(choice) is None


def test_prompt_ids_are_read_beside_or_inside_the_choice() -> None:
    assert prompt_ids({"prompt_token_ids": [1]}, {}) == [1]
    assert prompt_ids({}, {"prompt_token_ids": [2]}) == [2]
    assert prompt_ids({"prompt_token_ids": None}, {}) is None


def test_logprobs_are_read() -> None:
    assert read_logprobs(content(("a", -0.5), ("b", -1)), None) == {"logprobs": [-0.5, -1]}
    assert read_logprobs(content(("a", -0.5)), 1) == {"logprobs": [-0.5]}
    assert read_logprobs({}, 3) == {}


@pytest.mark.parametrize("value", [None, "x", float("-inf"), float("nan"), -(10**400)])
def test_logprobs_that_are_not_finite_are_left_out_and_that_is_said(value: Any) -> None:
    found = read_logprobs(content(("a", -0.5), ("b", value)), None)

    assert found == {"logprobs_left_out": "not all are finite numbers"}


def test_logprobs_that_do_not_fit_the_ids_are_left_out_and_that_is_said() -> None:
    found = read_logprobs(content(("a", -0.5), ("b", -1.0)), 3)

    assert found == {"logprobs_left_out": "2 for 3 token ids"}


def test_counts_within_reason_are_left_alone() -> None:
    usage = Usage(input_tokens=0, output_tokens=2**53, reasoning_tokens=1)

    assert drop_absurd_counts(usage) is usage


@pytest.mark.parametrize("name", ["input_tokens", "cached_tokens", "reasoning_tokens"])
@pytest.mark.parametrize("absurd", [-1, 2**53 + 1])
def test_a_count_beyond_reason_is_unknown(name: str, absurd: int) -> None:
    usage = Usage.model_validate({"output_tokens": 5, name: absurd})

    assert drop_absurd_counts(usage) == Usage(output_tokens=5)


@pytest.mark.parametrize("names", [("prompt", "completion"), ("input", "output")])
def test_both_apis_of_openai_are_read_by_the_names_they_use(names: tuple[str, str]) -> None:
    sent, made = names
    usage = {
        f"{sent}_tokens": 10,
        f"{made}_tokens": 4,
        f"{sent}_tokens_details": {"cached_tokens": 3},
        f"{made}_tokens_details": {"reasoning_tokens": 2},
    }

    read = read_openai_usage(usage, Price(input=1, output=2, cached_input=0.5), names=names)

    assert read is not None
    assert (read.input_tokens, read.output_tokens) == (10, 4)
    assert (read.cached_tokens, read.reasoning_tokens) == (3, 2)
    assert read.cost_usd == pytest.approx((7 + 1.5 + 8) / 1e6)
    assert read_openai_usage("12 tokens", None, names=names) is None
