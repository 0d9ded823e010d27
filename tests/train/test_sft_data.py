"""What samples become to be learned from, and how what is left out is accounted for."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import load_samples
from assay.errors import ConfigError, TokenError
from assay.train import SFTConfig
from assay.train.sft_data import Example, Examples, read_examples, read_template, replace_template
from assay.types import (
    Boundary,
    EvaluateResult,
    Failure,
    ModelCall,
    Sample,
    Status,
    Trajectory,
)
from make import asked, called, said, sample
from tiny_models import chat_template, tiny_tokenizer

VOCABULARY = 600


def read(*samples: Any, **settings: Any) -> Examples:
    config = SFTConfig(model_name="model", **settings)
    return read_examples(
        load_samples(list(samples)), config, tiny_tokenizer(), vocabulary=VOCABULARY
    )


def learned(example: Example) -> str:
    pairs = zip(example.tokens, example.mask, strict=True)
    return str(tiny_tokenizer().decode([token for token, counts in pairs if counts]))


def row(question: str, answer: str) -> dict[str, Any]:
    turns = [("user", question), ("assistant", answer)]
    return {"messages": [{"role": role, "content": text} for role, text in turns]}


def recorded(prompt: tuple[int, ...], completion: tuple[int, ...], **fields: Any) -> Sample:
    made = sample(asked("?"), said("!"), **fields)
    assert made.trajectory is not None
    made.trajectory.calls = [ModelCall(prompt_ids=prompt, completion_ids=completion)]
    return made


def test_conversations_are_learned_as_text() -> None:
    found = read(row("one?", "the answer"))

    assert [learned(example) for example in found.train] == ["the answer<|im_end|>"]
    assert found.retokenized == 1


def test_recorded_tokens_are_learned_as_they_are() -> None:
    found = read(recorded((1, 2), (3, 4)))

    (example,) = found.train
    assert example.tokens.tolist() == [1, 2, 3, 4]
    assert example.mask == bytes([0, 0, 1, 1])
    assert example.trained == 2
    assert found.retokenized == 0


def test_tokens_of_a_sample_are_taken_as_they_are() -> None:
    found = read(Sample(prompt="?", tokens=[5, 6, 7], loss_mask=[0, 1, 0]))

    assert found.train[0].mask == bytes([0, 1, 0])


def test_the_words_of_another_model_are_learned_where_text_is_asked_for() -> None:
    found = read(recorded((1, 2), (3, 4)), tokens="text")

    assert [learned(example) for example in found.train] == ["!<|im_end|>"]


def test_a_rollout_of_several_samples_is_several_sequences() -> None:
    forked = recorded((1, 2), (3,))
    assert forked.trajectory is not None
    forked.trajectory.calls.append(ModelCall(prompt_ids=(9, 8), completion_ids=(7,)))

    found = read(forked)

    assert [example.tokens.tolist() for example in found.train] == [[1, 2, 3], [9, 8, 7]]
    assert found.samples == 1


def test_rollouts_of_one_sample_are_all_learned() -> None:
    found = read(*(recorded((1, 2), (3 + n,), id="same", rollout_id=f"{n}") for n in range(2)))

    assert len(found.train) == 2


def test_a_file_of_samples_gives_what_the_samples_give(tmp_path: Path) -> None:
    samples = [recorded((1, 2), (3, 4), id="a"), sample(asked("one?"), said("two"), id="b")]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(each.to_json() + "\n" for each in samples))
    config = SFTConfig(model_name="model")

    from_file = read_examples(load_samples(path), config, tiny_tokenizer(), vocabulary=VOCABULARY)

    assert from_file.train == read(*samples).train


def test_tools_of_a_row_are_described_to_the_model() -> None:
    talk = [asked("sum"), said(None, called("calc", a=1)), said("done")]
    messages = [message.to_dict() for message in talk]
    tools = [{"type": "function", "function": {"name": "calc", "description": "adds"}}]

    told = read({"messages": messages, "tools": tools})
    untold = read({"messages": messages})

    assert "adds" in tiny_tokenizer().decode(list(told.train[0].tokens))
    assert [told.untold, untold.untold] == [0, 1]


BROKEN = Failure(boundary=Boundary.ENDPOINT, kind="EndpointError", message="overloaded")
LEFT_OUT: dict[str, tuple[Any, dict[str, Any]]] = {
    "failed": (recorded((1,), (2,), failure=BROKEN), {}),
    "labelled as bad": ({"prompt": "?", "completion": "no", "label": False}, {}),
    "without a score": (recorded((1,), (2,)), {"min_score": 0.5}),
    "below min_score": (recorded((1,), (2,), score=EvaluateResult(score=0.4)), {"min_score": 0.5}),
    "longer than max_length": (recorded((1,) * 500, (2,)), {"max_length": 300}),
    "without a token that counts": (recorded((1,), ()), {}),
    "without usable tokens": (Sample(prompt="?"), {"skip_unusable": True}),
}


@pytest.mark.parametrize("reason", LEFT_OUT)
def test_what_is_left_out_is_counted_by_reason(reason: str) -> None:
    bad, settings = LEFT_OUT[reason]
    good = recorded((1, 2), (3, 4), score=EvaluateResult(score=1.0), id="good")

    found = read(good, bad, **settings)

    assert found.left_out == {reason: 1}
    assert [found.samples, len(found.train)] == [2, 1]


def test_an_aborted_sample_is_left_out() -> None:
    found = read(recorded((1,), (2,), status=Status.ABORTED), recorded((1,), (3,), id="good"))

    assert found.left_out == {"failed": 1}


def test_rows_that_cannot_be_read_are_counted_too() -> None:
    rows = load_samples([row("one?", "two"), {"unheard": 1}], on_bad_row="skip")
    config = SFTConfig(model_name="model")

    found = read_examples(rows, config, tiny_tokenizer(), vocabulary=VOCABULARY)

    assert found.left_out == {"row that cannot be read": 1}


def test_a_sample_without_usable_tokens_is_refused_unless_told_otherwise() -> None:
    with pytest.raises(TokenError, match="nothing to learn"):
        read(Sample(prompt="?"))


def test_tokens_that_the_model_does_not_know_are_refused() -> None:
    with pytest.raises(
        TokenError,
        match="the sample has the token id 600, and the model's vocabulary has 600 tokens",
    ):
        read(recorded((1,), (600,)))


def test_nothing_to_learn_from_is_a_wrong_request_that_says_why() -> None:
    with pytest.raises(ConfigError, match="of 1 samples, none is left") as caught:
        read(recorded((1,), (2,), failure=BROKEN))

    assert caught.value.hint == "left out: 1 failed"


def test_no_prompt_is_both_learned_and_measured() -> None:
    rows = [recorded((1, 2), (3 + n,), id=f"{n}") for n in range(6)]
    for place, each in enumerate(rows):
        each.prompt = [asked(f"question {place // 2}")]

    found = read(*rows, held_out=0.3)

    assert [len(found.train), len(found.held_out)] == [4, 2]
    assert {each.prompt for each in found.train}.isdisjoint(each.prompt for each in found.held_out)


def test_the_split_follows_the_seed_and_not_the_order() -> None:
    rows = [row(f"question {n}", "answer") for n in range(20)]

    def held(rows: list[dict[str, Any]], seed: int) -> set[str]:
        return {example.prompt for example in read(*rows, held_out=0.2, seed=seed).held_out}

    assert held(rows, 0) == held(rows[::-1], 0)
    assert held(rows, 0) != held(rows, 1)


def test_a_split_that_leaves_nothing_to_learn_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"held_out=0.5 leaves none of 1 prompts"):
        read(row("one?", "two"), held_out=0.5)


def test_other_tokens_are_other_data() -> None:
    one, same, other = (read(recorded((1, 2), (3, last))) for last in (4, 4, 5))

    assert one.fingerprint() == same.fingerprint() != other.fingerprint()


def test_a_template_of_a_file_is_used_and_leaves_the_tokenizer_alone(tmp_path: Path) -> None:
    tokenizer = copy.deepcopy(tiny_tokenizer())
    path = tmp_path / "template.jinja"
    path.write_text(chat_template("smollm2"))

    other = replace_template(tokenizer, read_template(path))

    assert other.chat_template == chat_template("smollm2")
    assert tokenizer.chat_template == chat_template("qwen2.5")
    assert replace_template(tokenizer, read_template(None)) is tokenizer


def test_a_template_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the chat template cannot be read"):
        read_template(tmp_path / "none.jinja")


def test_bad_tools_are_named() -> None:
    with pytest.raises(TokenError, match=r"input.tools"):
        read({**row("one?", "two"), "tools": json.dumps([3])})


def test_a_trajectory_with_failed_calls_only_is_learned_as_text() -> None:
    talk = Trajectory(messages=[asked("one?"), said("two")], calls=[ModelCall()])

    found = read(Sample(prompt="one?", trajectory=talk))

    assert [learned(example) for example in found.train] == ["two<|im_end|>"]
