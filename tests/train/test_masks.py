"""The properties of tokens and masks on real rollouts, and that each fault breaks one of them."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from assay.train import tokenize_sample
from assay.types import ModelCall, Sample, Trajectory
from mask_properties import broken, calls_of, whole
from mask_rollouts import (
    CHATS,
    TEMPERATURE,
    recomputed,
    sampled_rollout,
    scripted_rollout,
    tokenizer_of,
    weights_of,
)

Made = list[Sample]


def changed(sample: Sample, **fields: Any) -> Sample:
    return sample.model_copy(update=fields, deep=True)


def spans(sample: Sample) -> list[tuple[int, int]]:
    """Where in a sample each of its calls begins and ends."""
    return [(len(call.prompt_ids or ()), len(whole(call))) for call in calls_of(sample)]


def without(values: list[Any], place: int) -> list[Any]:
    return [*values[:place], *values[place + 1 :]]


def logprobs_padded_left(name: str, made: Made) -> Made:
    """All logprobs of a rollout at the end of its last sample, whatever stands between them."""
    last, before = made[-1], made[:-1]
    known = [one for sample in made for call in calls_of(sample) for one in call.logprobs or ()]
    room = len(last.tokens)
    padded = ([0.0] * room + known)[-room:]
    return [*before, changed(last, rollout_log_probs=padded)]


def mask_one_late(name: str, made: Made) -> Made:
    return [changed(sample, loss_mask=[0.0, *sample.loss_mask[:-1]]) for sample in made]


def mask_one_early(name: str, made: Made) -> Made:
    return [changed(sample, loss_mask=[*sample.loss_mask[1:], 0.0]) for sample in made]


def separator_dropped(name: str, made: Made) -> Made:
    """The token after the first answer is missing, as where turns are joined without it."""
    last = made[-1]
    place = spans(last)[0][1] if len(spans(last)) > 1 else spans(last)[0][0] - 4
    known = last.rollout_log_probs or []
    return [
        *made[:-1],
        changed(
            last,
            tokens=without(last.tokens, place),
            loss_mask=without(last.loss_mask, place),
            rollout_log_probs=without(known, place),
        ),
    ]


def header_trained(name: str, made: Made) -> Made:
    mask = list(made[-1].loss_mask)
    start = spans(made[-1])[-1][0]
    mask[start - 3 : start] = [1.0] * 3
    return [*made[:-1], changed(made[-1], loss_mask=mask)]


def temperature_not_applied(name: str, made: Made) -> Made:
    def plain(sample: Sample) -> Sample:
        known = recomputed(weights_of(name), sample.tokens, 1.0)
        pairs = zip(known, sample.loss_mask, strict=True)
        return changed(sample, rollout_log_probs=[one * counts for one, counts in pairs])

    assert TEMPERATURE != 1.0
    return [plain(sample) for sample in made]


def completion_retokenised(name: str, made: Made) -> Made:
    """The last answer's ids are made of its text, as where only text is kept."""
    last, tokenizer = made[-1], tokenizer_of(name)
    start, end = spans(last)[-1]
    text = tokenizer.decode(last.tokens[start:end])
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert ids != last.tokens[start:end], "this model's ids are those a tokenizer would write"
    tokens = [*last.tokens[:start], *ids]
    known = recomputed(weights_of(name), tokens, TEMPERATURE)
    mask = [*last.loss_mask[:start], *[1.0] * len(ids)]
    kept = [*(last.rollout_log_probs or [])[:start], *known[start:]]
    return [*made[:-1], changed(last, tokens=tokens, loss_mask=mask, rollout_log_probs=kept)]


def stop_left_out(name: str, made: Made) -> Made:
    mask, known = list(made[-1].loss_mask), list(made[-1].rollout_log_probs or [])
    mask[-1], known[-1] = 0.0, 0.0
    return [*made[:-1], changed(made[-1], loss_mask=mask, rollout_log_probs=known)]


def history_trained(name: str, made: Made) -> Made:
    """The answer that the prompt holds counts, as in a mask by role."""
    sample, tokenizer = made[0], tokenizer_of(name)
    words = tokenizer("hello the user", add_special_tokens=False)["input_ids"]
    size = len(words)
    place = next(at for at in range(len(sample.tokens)) if sample.tokens[at : at + size] == words)
    mask, known = list(sample.loss_mask), list(sample.rollout_log_probs or [])
    mask[place : place + size] = [1.0] * size
    # The best case for the fault: even logprobs that fit do not hide it.
    known[place : place + size] = recomputed(weights_of(name), sample.tokens, TEMPERATURE)[
        place : place + size
    ]
    return [changed(sample, loss_mask=mask, rollout_log_probs=known), *made[1:]]


def answer_counted_twice(name: str, made: Made) -> Made:
    return [*made, made[-1]]


def a_sample_is_lost(name: str, made: Made) -> Made:
    return made[:-1]


Fault = Callable[[str, Made], Made]
FAULTS: dict[str, tuple[Fault, set[str]]] = {
    "logprobs padded left": (logprobs_padded_left, {"P1"}),
    "mask one late": (mask_one_late, {"P1", "P2", "P3"}),
    "mask one early": (mask_one_early, {"P1", "P3", "P5", "P7"}),
    "turn separator dropped": (separator_dropped, {"P1", "P3"}),
    "assistant header trained": (header_trained, {"P1", "P2"}),
    "temperature not applied": (temperature_not_applied, {"P1"}),
    "completion retokenised": (completion_retokenised, {"P2", "P3"}),
    "stop token left out": (stop_left_out, {"P2", "P3", "P5"}),
    "history trained": (history_trained, {"P2", "P7"}),
    "counted twice": (answer_counted_twice, {"P2", "P3", "P5"}),
    "sample lost": (a_sample_is_lost, {"P2", "P3", "P5"}),
}
"""Each fault, and the properties that must flag it. Others may."""


@pytest.mark.parametrize("name", CHATS)
def test_every_property_holds_for_two_turns(name: str) -> None:
    rollout = scripted_rollout(name)

    made = tokenize_sample(rollout)

    assert len(calls_of(rollout)) == 2
    assert broken(name, rollout, made) == set()
    assert len(made) == CHATS[name].samples


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CHATS)
def test_every_property_holds_for_what_the_weights_really_sample(name: str, seed: int) -> None:
    rollout = sampled_rollout(name, seed)

    assert broken(name, rollout, tokenize_sample(rollout)) == set()


@pytest.mark.parametrize("name", ["qwen2.5", "llama3", "mistral", "qwen3, thinking", "phi3"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_flagged(name: str, fault: str) -> None:
    rollout = scripted_rollout(name)
    cause, expected = FAULTS[fault]

    flagged = broken(name, rollout, cause(name, tokenize_sample(rollout)))

    assert expected <= flagged


@pytest.mark.parametrize("length", [1, 4, 16, 64])
def test_ids_are_the_truth_whatever_they_decode_to(length: int) -> None:
    tokenizer, chance = tokenizer_of("qwen2.5"), random.Random(length)
    drifted = 0
    for _ in range(50):
        ids = tuple(chance.randrange(len(tokenizer)) for _ in range(length))
        calls = [ModelCall(prompt_ids=(1, 2), completion_ids=ids)]

        (made,) = tokenize_sample(Sample(prompt="?", trajectory=Trajectory(calls=calls)))

        assert made.tokens == [1, 2, *ids]
        again = tokenizer(tokenizer.decode(ids), add_special_tokens=False)["input_ids"]
        drifted += tuple(again) != ids
    # The fuzz is worth its name: text loses most of these.
    assert drifted >= (45 if length >= 16 else 1)
