"""`tokenize_sample`: what is appended, what counts for the loss, and which calls are refused."""

from typing import Any

import pytest

from assay.errors import TokenError
from assay.train import check_tokens, token_source, tokenize_sample
from assay.train.token_spans import FORK, FORKS
from assay.types import EvaluateResult, ModelCall, Sample, Trajectory
from make import asked, said, sample


def call(prompt: str, completion: str, **fields: Any) -> ModelCall:
    """A call whose token ids are the codes of characters."""
    fields = {"logprobs": [-0.5] * len(completion), **fields}
    return ModelCall(
        prompt_ids=tuple(map(ord, prompt)), completion_ids=tuple(map(ord, completion)), **fields
    )


def recorded(*calls: ModelCall, **fields: Any) -> Sample:
    made = sample(asked("?"), said("!"), **fields)
    assert made.trajectory is not None
    made.trajectory.calls = list(calls)
    return made


def text(made: Sample) -> str:
    return "".join(map(chr, made.tokens))


def counted(made: Sample) -> str:
    """The tokens that count, and a dot in the place of each that does not."""
    pairs = zip(text(made), made.loss_mask, strict=True)
    return "".join(char if value == 1.0 else "." for char, value in pairs)


def test_the_mask_is_on_what_was_sampled() -> None:
    (made,) = tokenize_sample(recorded(call("Q:", "an$")))

    assert text(made) == "Q:an$"
    assert counted(made) == "..an$"
    assert made.rollout_log_probs == [0.0, 0.0, -0.5, -0.5, -0.5]
    assert token_source(made) == "recorded"


def test_a_turn_that_continues_the_tokens_is_appended() -> None:
    two = recorded(call("Q:", "an$", logprobs=[-1, -2, -3]), call("Q:an$T:", "b$"))

    (made,) = tokenize_sample(two)

    assert counted(made) == "..an$..b$"
    assert made.rollout_log_probs == [0, 0, -1, -2, -3, 0, 0, -0.5, -0.5]
    assert FORKS not in made.metadata


def test_titles_and_retries_are_not_trained_on() -> None:
    beside = [
        call("Title of Q:", "t$", purpose="title"),
        call("Q:", "an$"),
        ModelCall(purpose="retry", parent=1),
        ModelCall(purpose="count_tokens"),
        call("Sum up Q:an$", "s$", purpose="summary"),
        call("Sub:", "x$", branch=1),
    ]

    main, child = tokenize_sample(recorded(*beside))

    assert [counted(main), counted(child)] == ["..an$", "....x$"]


def test_a_rollout_of_titles_alone_has_nothing_to_train_on() -> None:
    with pytest.raises(TokenError, match="nothing was sampled"):
        tokenize_sample(recorded(call("Title:", "t$", purpose="title")))


def test_a_turn_that_does_not_continue_them_begins_another_sample() -> None:
    rewritten = recorded(
        call("Q:", "<t>an$"),
        call("Q:an$T:", "b$"),
        id="one",
        group_index=3,
        rollout_id="one#2",
        score=EvaluateResult(score=0.5),
    )

    first, second = tokenize_sample(rewritten)

    assert [counted(first), counted(second)] == ["..<t>an$", ".......b$"]
    assert [first.id, second.id] == ["one", "one#fork-1"]
    assert {made.rollout_id for made in (first, second)} == {"one#2"}
    assert [made.group_index for made in (first, second)] == [3, 3]
    assert [made.reward for made in (first, second)] == [0.5, 0.5]
    assert [made.metadata[FORK] for made in (first, second)] == [0, 1]
    assert [made.metadata[FORKS] for made in (first, second)] == [2, 2]


def test_two_agents_that_take_turns_keep_their_own_tokens() -> None:
    interleaved = recorded(
        call("Q:", "a$"), call("sub:", "x$"), call("Q:a$T:", "b$"), call("sub:x$T:", "y$")
    )

    assert [counted(made) for made in tokenize_sample(interleaved)] == ["..a$..b$", "....x$..y$"]


def test_the_longest_tokens_that_fit_are_continued() -> None:
    retried = recorded(call("Q", "a"), call("Q", "a"), call("Qab", "c"), call("Qabcd", "e"))

    assert [counted(made) for made in tokenize_sample(retried)] == [".a.c.e", ".a"]


def test_an_equal_prompt_asked_twice_counts_each_answer_once() -> None:
    twice = recorded(call("Q:", "a$"), call("Q:", "b$"))

    assert [counted(made) for made in tokenize_sample(twice)] == ["..a$", "..b$"]


def test_tokenising_again_finds_no_token_twice() -> None:
    made = tokenize_sample(recorded(call("Q:", "<t>an$"), call("Q:an$T:", "b$")))

    again = [one for fork in made for one in tokenize_sample(fork)]

    assert again == made


def test_the_sample_itself_is_left_as_it_was() -> None:
    given = recorded(call("Q:", "a$"), call("X:", "b$"))
    before = given.model_copy(deep=True)

    tokenize_sample(given)

    assert given == before


def test_rollouts_without_an_id_get_one_that_their_samples_share() -> None:
    first, second = tokenize_sample(recorded(call("Q:", "a$"), call("X:", "b$")))
    (other,) = tokenize_sample(recorded(call("Q:", "z$")))

    assert first.rollout_id
    assert first.rollout_id == second.rollout_id != other.rollout_id


def test_without_logprobs_there_are_none_rather_than_zeros() -> None:
    (made,) = tokenize_sample(recorded(call("Q:", "a$"), call("Q:a$T:", "b$", logprobs=None)))

    assert made.rollout_log_probs is None
    assert counted(made) == "..a$..b$"


def test_a_failed_call_sampled_nothing() -> None:
    failed = ModelCall(error="overloaded")

    first, second = tokenize_sample(recorded(call("Q:", "a$"), failed, call("X:", "b$")))

    assert [counted(first), counted(second)] == ["..a$", "..b$"]
    assert first.trajectory is not None
    assert failed in first.trajectory.calls


def test_an_answer_cut_at_its_limit_has_no_end_to_count() -> None:
    cut = recorded(call("Q:", "an", finish_reason="length"), call("Q:an$T:", "b$"))

    assert [counted(made) for made in tokenize_sample(cut)] == ["..an...b$"]


REFUSED = {
    "no completion ids": (ModelCall(prompt_ids=(1,)), "call 1: .* no `completion_ids`"),
    "no prompt ids": (ModelCall(completion_ids=(1,)), "call 1: .* no `prompt_ids`"),
    "empty prompt": (call("", "a"), "`prompt_ids` is empty"),
    "too few logprobs": (
        call("Q", "ab", logprobs=[-1]),
        "the call has 1 logprobs for 2 completion ids",
    ),
    "negative id": (ModelCall(prompt_ids=(1,), completion_ids=(-1,)), "-1 is not a token id"),
    "all failed": (ModelCall(error="overloaded"), "every recorded call failed"),
}


@pytest.mark.parametrize(("bad", "problem"), REFUSED.values(), ids=REFUSED)
def test_a_call_without_usable_ids_is_refused(bad: ModelCall, problem: str) -> None:
    with pytest.raises(TokenError, match=problem):
        tokenize_sample(recorded(bad, id="one"))


def test_the_call_at_fault_is_named() -> None:
    with pytest.raises(TokenError, match=r"sample one, call 2: .*\n  hint: for SFT, `retoken"):
        tokenize_sample(recorded(call("Q:", "a$"), ModelCall(), id="one"))


@pytest.mark.parametrize("given", [Sample(prompt="?"), Sample(prompt="?", trajectory=Trajectory())])
def test_without_calls_there_is_nothing_to_append(given: Sample) -> None:
    with pytest.raises(TokenError, match="the sample has no recorded model call"):
        tokenize_sample(given)


def test_nobody_knows_where_unmarked_tokens_come_from() -> None:
    assert token_source(Sample(prompt="?", tokens=[1, 2], loss_mask=[0, 1])) is None
    assert token_source(Sample(prompt="?", metadata={"token_source": "recorded"})) is None
    assert token_source(Sample(prompt="?", tokens=[1], metadata={"token_source": "x"})) is None


WRONG = {
    "none": ({"tokens": []}, "the sample has no tokens"),
    "mask too short": ({"loss_mask": [0.0]}, "1 mask values for 2 tokens"),
    "half": ({"loss_mask": [0.0, 0.5]}, "mask value 0.5"),
    "first counts": ({"loss_mask": [1.0, 1.0]}, "the mask is on at the first token"),
    "negative": ({"tokens": [1, -7]}, "token id -7"),
    "logprobs": ({"rollout_log_probs": [0.0]}, "1 logprobs for 2 tokens"),
}


@pytest.mark.parametrize(("change", "problem"), WRONG.values(), ids=WRONG)
def test_tokens_that_do_not_fit_their_mask_are_refused(
    change: dict[str, Any], problem: str
) -> None:
    fits: dict[str, Any] = {
        "tokens": [1, 2],
        "loss_mask": [0.0, 1.0],
        "rollout_log_probs": [0.0, -1.0],
    }
    check_tokens(Sample(prompt="?", **fits))

    with pytest.raises(TokenError, match=problem):
        check_tokens(Sample(prompt="?", **{**fits, **change}))
