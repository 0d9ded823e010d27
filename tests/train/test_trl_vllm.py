"""Rollouts through TRL's vLLM, with an engine in its place that answers as vLLM would."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from assay.errors import EndpointError
from assay.providers.in_process import LocalClient, LocalModel, Sampling
from assay.train.trl_vllm import VllmEngine, sample_with_vllm
from assay.types import Endpoint, Message
from word_models import END, word_model


class Generation:
    """Says the same to every prompt, and notes what it was asked."""

    def __init__(self, ids: list[int], logprobs: list[float | None]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._ids, self._logprobs = ids, logprobs

    def generate(self, **asked: Any) -> tuple[Any, Any, Any, Any]:
        self.asked.append(asked)
        count = len(asked["prompts"])
        known = [[[logprob] for logprob in self._logprobs]] * count
        return asked["prompts"], [self._ids] * count, known, None


@pytest.fixture(scope="module")
def local() -> LocalModel:
    model = word_model(["yes"])
    model.weight_version = "step-3"
    return model


def ids_of(local: LocalModel, *words: str) -> list[int]:
    return list(local.tokenizer.convert_tokens_to_ids(list(words)))


def test_calls_go_to_vllm_and_are_recorded_with_its_tokens(local: LocalModel) -> None:
    said = ids_of(local, "yes", END)
    generation = Generation(said, [-0.25, -0.5])
    trainer = SimpleNamespace(use_vllm=True, vllm_generation=generation)
    client = LocalClient(local, Endpoint(provider="local", model="m"))

    with sample_with_vllm(trainer, local):
        reply = asyncio.run(client.complete([Message(role="user", content="well?")]))

    assert reply.message.text == "yes"
    assert reply.call.completion_ids == tuple(said)
    assert reply.call.logprobs == (-0.25, -0.5)
    assert reply.call.weight_version == "step-3"
    assert reply.call.finish_reason == "stop"
    assert generation.asked[0]["num_generations"] == 1
    assert generation.asked[0]["prompts"] == [list(reply.call.prompt_ids or ())]


def test_without_vllm_the_model_itself_answers(local: LocalModel) -> None:
    batches = local.batches

    with sample_with_vllm(SimpleNamespace(use_vllm=False), local):
        assert local.batches is batches


def test_an_answer_that_does_not_end_was_cut(local: LocalModel) -> None:
    engine = VllmEngine(Generation(ids_of(local, "yes"), [-1.0]), local)

    (made,) = engine.generate([[1, 2]], Sampling(), seeds=[None])

    assert made.finish_reason == "length"


@pytest.mark.parametrize(("words", "logprobs"), [([], []), (["yes"], [None])])
def test_tokens_without_logprobs_are_refused(
    words: list[str], logprobs: list[float | None], local: LocalModel
) -> None:
    engine = VllmEngine(Generation(ids_of(local, *words), logprobs), local)

    with pytest.raises(EndpointError, match="vLLM returned"):
        engine.generate([[1, 2]], Sampling(), seeds=[None])
