"""Tokens of text: which tokens count through real chat templates, and which are refused."""

import copy
import re
from functools import cache
from typing import Any

import pytest

from assay.datasets import load_samples
from assay.errors import TokenError
from assay.train import (
    Retokenizer,
    retokenize_sample,
    to_demonstration,
    token_source,
    tokenize_sample,
)
from assay.train.retokenize import find_answer_places
from assay.train.token_spans import FORKS
from assay.types import Message, ModelCall, Sample, ToolSpec, Trajectory
from make import answered, asked, called, said, sample
from mask_rollouts import shipped_template
from tiny_models import tiny_tokenizer

PLAIN = [asked("hello"), said("first"), asked("and"), said("second")]
THOUGHT = [
    message.model_copy(update={"reasoning": "because so"})
    if message.role == "assistant"
    else message
    for message in PLAIN
]
TOOLS = [
    asked("sum"),
    said(None, called("calc", expression="1+1")),
    answered("2"),
    said("it is 2"),
]
TALKS = {"plain": PLAIN, "thought": THOUGHT, "tools": TOOLS}
_MARKER = re.compile(r"<[|｜][^<>{}'\"]*?[|｜]>|<(?:end|start)_of_turn>")


@cache
def tokenizer_for(name: str) -> Any:
    """A tiny tokenizer with a template that TRL carries, and that template's special tokens."""
    made = copy.deepcopy(tiny_tokenizer("qwen2.5"))
    made.chat_template = shipped_template(name)
    markers = {*made.all_special_tokens, *_MARKER.findall(made.chat_template)}
    made.add_special_tokens({"additional_special_tokens": sorted(markers)})
    made.bos_token = "<|endoftext|>"
    return made


def conversation(messages: list[Message], **fields: Any) -> Sample:
    return Sample(prompt=messages[:1], trajectory=Trajectory(messages=messages), **fields)


def made_of(name: str, kind: str) -> list[Sample]:
    tools = [ToolSpec(name="calc")] if kind == "tools" else []
    return retokenize_sample(conversation(TALKS[kind], id="one"), tokenizer_for(name), tools=tools)


def trained(name: str, samples: list[Sample]) -> list[str]:
    """What counts in each sample: a bar stands for whatever lies between two spans."""
    tokenizer = tokenizer_for(name)
    found = []
    for part in samples:
        text = ""
        for token, counts in zip(part.tokens, part.loss_mask, strict=True):
            text += tokenizer.decode([token]) if counts else "|" * (text[-1:] not in ("", "|"))
        found.append(text)
    return found


_THINK = "<think>\nbecause so\n</think>\n\n"
_HERMES = '<tool_call>\n{"name": "calc", "arguments": {"expression": "1+1"}}\n</tool_call>'
TRAINED = {
    ("qwen2_5", "plain"): ["first<|im_end|>|second<|im_end|>"],
    ("qwen2_5", "tools"): [f"{_HERMES}<|im_end|>|it is 2<|im_end|>"],
    ("qwen2_5_training", "plain"): ["first<|im_end|>|second<|im_end|>"],
    ("llama3", "plain"): ["first<|eot_id|>|second<|eot_id|>"],
    ("llama3_1", "tools"): [
        '{"name": "calc", "parameters": {"expression": "1+1"}}<|eot_id|>|it is 2<|eot_id|>'
    ],
    ("gemma", "plain"): ["first<end_of_turn>|second<end_of_turn>"],
    ("gemma3_training", "plain"): ["first<end_of_turn>|second<end_of_turn>"],
    ("cohere2", "plain"): [
        "first<|END_RESPONSE|><|END_OF_TURN_TOKEN|>|second<|END_RESPONSE|><|END_OF_TURN_TOKEN|>"
    ],
    # Ends a conversation otherwise than it goes on: the end of the conversation is not said.
    ("phi3", "plain"): ["first<|end|>|second<|end|>"],
    # Leave the thoughts out of earlier turns: each turn is a sample of its own.
    ("qwen3", "thought"): [f"{_THINK}first<|im_end|>", f"{_THINK}second<|im_end|>"],
    ("qwen3_5_think", "thought"): [
        "because so\n</think>\n\nfirst<|im_end|>",
        "because so\n</think>\n\nsecond<|im_end|>",
    ],
    ("qwen3_5_nothink", "plain"): ["first<|im_end|>", "second<|im_end|>"],
    ("qwen3_training", "thought"): [f"{_THINK}first<|im_end|>|{_THINK}second<|im_end|>"],
    # Marks its headers as generated: they are prompt all the same.
    ("gptoss_training", "plain"): [
        "<|channel|>final<|message|>first<|return|>",
        "<|channel|>final<|message|>second<|return|>",
    ],
}


@pytest.mark.parametrize(("name", "kind"), TRAINED)
def test_the_answers_and_their_ends_count(name: str, kind: str) -> None:
    made = made_of(name, kind)

    assert trained(name, made) == TRAINED[name, kind]


@pytest.mark.parametrize(("name", "kind"), TRAINED)
def test_the_tokens_are_those_the_model_is_asked_with(name: str, kind: str) -> None:
    tokenizer, talk = tokenizer_for(name), TALKS[kind]
    made = made_of(name, kind)
    wire = [message.to_dict() for message in talk]
    for message in wire:
        message.setdefault("content", "")
        if "reasoning" in message:
            message["reasoning_content"] = message.pop("reasoning")
        for call in message.get("tool_calls", ()):
            call["function"] = {"name": call.pop("name"), "arguments": call.pop("arguments")}
    tools = None
    if kind == "tools":
        spec = ToolSpec(name="calc")
        tools = [{"type": "function", "function": spec.model_dump()}]

    ends = [2, 4] if len(made) == 2 else [4]
    for part, end in zip(made, ends, strict=True):
        text = tokenizer.apply_chat_template(wire[:end], tools=tools, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert part.tokens == ids[: len(part.tokens)]


REFUSED = {
    (
        "qwen3",
        "plain",
    ): r"adds '<think>\\n\\n</think>\\n\\n' to the answer, which is not in the message",
    ("qwen3_5_think", "plain"): "to the answer, which is not in the message",
    ("gptoss", "plain"): "to the answer, which is not in the message",
    ("glm4moe", "thought"): "ends the answer without a special token",
    ("deepseekv3", "plain"): "the generation prompt is not a prefix",
    ("llama3", "thought"): "the template does not write 'Two cities, 1 is left' of the answer",
    ("llama3", "tools"): "the template omits 'look_up' of a message",
    ("phi3", "tools"): "the template omits 'look_up' of a message",
    ("gemma", "tools"): "fails on user assistant tool: TemplateError",
    ("idefics3", "plain"): "the template does not write 'Ghent' of the answer",
}


@pytest.mark.parametrize(("name", "kind"), REFUSED)
def test_a_template_that_cannot_be_masked_safely_says_why(name: str, kind: str) -> None:
    with pytest.raises(TokenError, match=f"sample one, message 1: .*{REFUSED[name, kind]}"):
        made_of(name, kind)


def test_tokens_made_of_text_are_marked_and_have_no_logprobs() -> None:
    (made,) = made_of("qwen2_5", "plain")

    assert token_source(made) == "retokenized"
    assert made.rollout_log_probs is None
    assert made.trajectory is not None
    assert made.trajectory.messages == PLAIN


def test_answers_in_the_prompt_are_context() -> None:
    history = Sample(prompt=PLAIN[:3], trajectory=Trajectory(messages=PLAIN))

    made = retokenize_sample(history, tokenizer_for("qwen2_5"))

    assert trained("qwen2_5", made) == ["second<|im_end|>"]


def test_calls_say_which_messages_were_sampled() -> None:
    shown = conversation(PLAIN)
    assert shown.trajectory is not None
    shown.trajectory.calls = [ModelCall(message_index=3), ModelCall(error="overloaded")]

    made = retokenize_sample(shown, tokenizer_for("qwen2_5"))

    assert trained("qwen2_5", made) == ["second<|im_end|>"]


def test_an_answer_of_weight_zero_is_context() -> None:
    light = Message(role="assistant", content="first", weight=0)

    made = retokenize_sample(conversation([PLAIN[0], light, *PLAIN[2:]]), tokenizer_for("qwen2_5"))

    assert trained("qwen2_5", made) == ["second<|im_end|>"]


def test_a_system_message_that_was_put_before_the_prompt_changes_nothing() -> None:
    system = Message(role="system", content="Be brief")
    prepared = Sample(prompt=PLAIN[:1], trajectory=Trajectory(messages=[system, *PLAIN]))

    made = retokenize_sample(prepared, tokenizer_for("qwen2_5"))

    assert trained("qwen2_5", made) == ["first<|im_end|>|second<|im_end|>"]


def test_a_system_message_that_the_template_leaves_out_is_refused() -> None:
    deaf = copy.deepcopy(tokenizer_for("qwen2_5"))
    deaf.chat_template = (
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    told = conversation([Message(role="system", content="Say 2"), *PLAIN])

    with pytest.raises(TokenError, match="the template omits 'Be brief' of a message"):
        retokenize_sample(told, deaf)


def test_which_answers_are_new_must_be_known() -> None:
    other = [asked("hello"), said("another"), asked("and")]
    unclear = Sample(prompt=other, trajectory=Trajectory(messages=PLAIN))

    with pytest.raises(TokenError, match="the answers to learn from are ambiguous"):
        retokenize_sample(unclear, tokenizer_for("qwen2_5"))


NOTHING = {
    "no trajectory": (Sample(prompt="?"), "has no trajectory"),
    "no answer": (conversation(PLAIN[:1]), "the sample has no answer after its prompt"),
}


@pytest.mark.parametrize(("given", "problem"), NOTHING.values(), ids=NOTHING)
def test_without_an_answer_there_is_nothing_to_learn(given: Sample, problem: str) -> None:
    with pytest.raises(TokenError, match=problem):
        retokenize_sample(given, tokenizer_for("qwen2_5"))


def test_samples_of_one_rollout_share_its_calls_out() -> None:
    calls = [ModelCall(message_index=1), ModelCall(message_index=3)]
    talk = Trajectory(messages=THOUGHT, calls=calls)

    first, second = retokenize_sample(
        Sample(prompt="hello", trajectory=talk), tokenizer_for("qwen3")
    )

    assert first.trajectory is not None
    assert second.trajectory is not None
    assert [first.trajectory.calls, second.trajectory.calls] == [calls[:1], calls[1:]]
    assert first.rollout_id == second.rollout_id
    assert first.metadata[FORKS] == 2


def test_a_part_of_a_rollout_is_not_retokenised_again() -> None:
    first, _ = made_of("qwen3", "thought")

    with pytest.raises(TokenError, match="the sample is one of several"):
        retokenize_sample(first, tokenizer_for("qwen3"))


def test_text_has_no_recorded_tokens_to_append() -> None:
    with pytest.raises(TokenError, match="the sample has no recorded model call"):
        tokenize_sample(conversation(PLAIN))


def test_one_retokenizer_serves_samples_of_every_kind() -> None:
    retokenizer = Retokenizer(tokenizer_for("qwen3_training"))

    made = [retokenizer.samples(conversation(talk)) for talk in TALKS.values()]

    assert [len(samples) for samples in made] == [1, 1, 1]


TALK = [asked("one?"), said("1"), asked("two?"), said("2")]


def test_all_answers_of_a_conversation_are_shown() -> None:
    made = to_demonstration(Sample(prompt=TALK))

    assert made.prompt == TALK[:1]
    assert made.messages == TALK
    assert find_answer_places(made) == [1, 3]


def test_only_the_last_answer_where_that_is_asked_for() -> None:
    made = to_demonstration(Sample(prompt=TALK), turns="last")

    assert made.prompt == TALK[:3]
    assert find_answer_places(made) == [3]


def read(row: dict[str, Any]) -> Sample:
    (made,) = load_samples([row])
    return made


def test_a_completion_answers_its_prompt_and_the_prompt_is_context() -> None:
    history = [message.to_dict() for message in TALK[:3]]
    completion = [{"role": "assistant", "content": "2"}]

    made = to_demonstration(read({"prompt": history, "completion": completion}))

    assert made.messages == TALK
    assert find_answer_places(made) == [3]


def test_a_completion_may_be_text() -> None:
    made = to_demonstration(read({"prompt": "one?", "completion": "1"}))

    assert made.messages == TALK[:2]


def test_a_sample_with_a_trajectory_stays_as_it_is() -> None:
    given = sample(*TALK)

    assert to_demonstration(given) is given


@pytest.mark.parametrize("messages", [TALK[:1], TALK[:3]])
def test_a_conversation_that_waits_for_an_answer_shows_nothing(messages: list[Any]) -> None:
    with pytest.raises(TokenError, match="does not end with an answer"):
        to_demonstration(Sample(prompt=messages))


@pytest.mark.parametrize("completion", [3, [{"content": "no role"}]])
def test_a_completion_of_another_kind_is_refused(completion: object) -> None:
    with pytest.raises(TokenError, match="neither text nor a list of messages"):
        to_demonstration(Sample(prompt="one?", input={"completion": completion}))


def test_the_sample_itself_is_left_as_it_was() -> None:
    given = Sample(prompt=TALK)

    to_demonstration(given)

    assert given.trajectory is None
    assert given.prompt == TALK
    assert Trajectory(messages=TALK).messages == TALK
