"""`agent_rollout_to_sample`: a rollout with its tokens, recorded or made of text."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from assay.agents import Limits, RolloutFailed
from assay.environments import BasicEnvironment, CalculatorEnvironment, Environment, Step
from assay.errors import ConfigError, EndpointError, TokenError
from assay.formats.tool_schemas import find_tools
from assay.providers import EndpointLike, ModelClient, Reply
from assay.providers.in_process import LocalClient
from assay.train import (
    ForkedRollout,
    agent_rollout_to_sample,
    agent_rollout_to_samples,
    token_source,
)
from assay.types import Endpoint, Message, Sample, Status, ToolSpec
from mask_rollouts import TwoQuestions, tokenizer_of
from tiny_models import tiny_local, tiny_tokenizer

CALL = {"tool_calls": [{"id": "call_1", "name": "calculate", "arguments": {"expression": "5 + 3"}}]}


def told(*replies: Any, **options: Any) -> Endpoint:
    """A model that says just this, without token ids."""
    return Endpoint(
        provider="mock", model="script", extra_params={"replies": list(replies), **options}
    )


def rolled_out(
    prompt: Any, environment: Any, endpoint: EndpointLike | ModelClient, **options: Any
) -> Sample:
    return asyncio.run(agent_rollout_to_sample(prompt, environment, endpoint, **options))


def test_the_endpoint_may_be_a_model_string() -> None:
    sample = rolled_out("?", "basic", "mock:echo", tokenizer=tiny_tokenizer("qwen2.5"))

    assert sample.response == "?"


def local_client(**settings: Any) -> LocalClient:
    endpoint = Endpoint(provider="local", model="tiny", max_tokens=6, **settings)
    return LocalClient(tiny_local(), endpoint)


def counted(sample: Sample, tokenizer: Any) -> str:
    pairs = zip(sample.tokens, sample.loss_mask, strict=True)
    return str(tokenizer.decode([token for token, counts in pairs if counts]))


def test_the_environment_has_the_name_of_the_seeds_too() -> None:
    by_alias: Any = {"environment_cls": CalculatorEnvironment}

    sample = asyncio.run(
        agent_rollout_to_sample(
            "What is 5 + 3?",
            endpoint=told(CALL, "8"),
            tokenizer=tiny_tokenizer("qwen2.5"),
            **by_alias,
        )
    )

    assert sample.response == "8"
    with pytest.raises(ConfigError, match="both `environment` and `environment_cls` are given"):
        asyncio.run(agent_rollout_to_sample("?", "basic", told("8"), **by_alias))


def test_text_is_retokenised_and_marked_where_the_engine_tells_no_ids() -> None:
    tokenizer = tiny_tokenizer("qwen2.5")

    sample = rolled_out(
        "What is 5 + 3?",
        CalculatorEnvironment,
        told(CALL, "The answer is 8."),
        tokenizer=tokenizer,
    )

    assert token_source(sample) == "retokenized"
    assert sample.response == "The answer is 8."
    assert sample.status is Status.COMPLETED
    assert sample.trajectory is not None
    assert [message.role for message in sample.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    said = counted(sample, tokenizer)
    assert said.startswith('<tool_call>\n{"name": "calculate"')
    assert said.endswith("</tool_call><|im_end|>The answer is 8.<|im_end|>")
    assert '"name": "calculate", "description"' in tokenizer.decode(sample.tokens)


def test_the_tools_that_were_offered_are_kept_with_the_rollout() -> None:
    tokenizer = tiny_tokenizer("qwen2.5")

    sample = rolled_out("5 + 3?", CalculatorEnvironment, told("8"), tokenizer=tokenizer)

    assert [tool["function"]["name"] for tool in find_tools(sample)] == ["calculate"]


def test_recorded_ids_come_before_the_text() -> None:
    sample = rolled_out("What is 5 + 3?", BasicEnvironment, local_client(), seed=1)

    assert token_source(sample) == "recorded"
    assert sample.trajectory is not None
    (call,) = sample.trajectory.calls
    assert sample.tokens == [*(call.prompt_ids or ()), *(call.completion_ids or ())]
    assert sum(sample.loss_mask) == len(call.completion_ids or ())
    assert sample.rollout_log_probs is not None


def test_a_seed_decides_what_is_sampled() -> None:
    one, same, other = (
        rolled_out("hello", BasicEnvironment, local_client(), seed=seed).tokens
        for seed in (1, 1, 2)
    )

    assert one == same != other


def test_a_rollout_whose_history_was_rewritten_is_several_samples() -> None:
    name = "qwen3.5"
    answers = [
        {"content": "first", "reasoning": "so"},
        {"content": "second", "reasoning": "so"},
    ]

    with pytest.raises(ForkedRollout, match="is 2 samples") as caught:
        rolled_out("hello", TwoQuestions, told(*answers), tokenizer=tokenizer_of(name))

    assert [sample.messages[-1].text for sample in caught.value.samples] == ["second"] * 2
    assert len({sample.rollout_id for sample in caught.value.samples}) == 1
    again = agent_rollout_to_samples(
        "hello", TwoQuestions, told(*answers), tokenizer_of(name), limits=Limits(max_turns=2)
    )
    assert len(asyncio.run(again)) == 2


def test_without_ids_and_without_a_tokenizer_there_are_no_tokens() -> None:
    with pytest.raises(TokenError, match="no token ids, and no tokenizer"):
        rolled_out("hello", BasicEnvironment, told("hello"))


def test_a_limit_cuts_the_rollout_short_and_the_sample_says_so() -> None:
    sample = rolled_out(
        "5 + 3?",
        CalculatorEnvironment,
        told(CALL, "8"),
        tokenizer=tiny_tokenizer("qwen2.5"),
        limits=Limits(max_turns=1),
    )

    assert sample.status is Status.TRUNCATED


class Rewarding(BasicEnvironment):
    """Made of the sample, and pays for its prompt's length."""

    def __init__(self, sample: Sample) -> None:
        self._reward = float(len(sample.messages))

    async def step(self, action: Message) -> Step:
        return Step(reward=self._reward, terminated=True, ended_by_agent=True)


def test_the_environment_may_be_made_of_the_sample_and_give_the_score() -> None:
    sample = rolled_out(
        [{"role": "user", "content": "hello"}], Rewarding, told("hi"), tokenizer=tiny_tokenizer()
    )

    assert sample.reward == 1.0


def test_an_environment_may_be_named() -> None:
    sample = rolled_out("5 + 3?", "calculator", told("8"), tokenizer=tiny_tokenizer())

    assert sample.response == "8"


def test_what_is_no_environment_is_refused_before_the_model_is_asked() -> None:
    with pytest.raises(ConfigError, match="returns a dict, which is not an environment"):
        rolled_out("hello", dict[str, Any], told("hello"))


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(ConfigError, match="the prompt is empty"):
        rolled_out("", BasicEnvironment, told("hello"))


class Overloaded:
    """A client that somebody else made, and closes."""

    def __init__(self) -> None:
        self.endpoint = told("hello")
        self.closed = False

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        raise EndpointError("overloaded")

    async def close(self) -> None:
        self.closed = True


def test_a_broken_rollout_raises_and_leaves_a_given_client_open() -> None:
    client = Overloaded()

    with pytest.raises(RolloutFailed, match="overloaded"):
        rolled_out("hello", BasicEnvironment, client)

    assert not client.closed


def test_environments_are_made_afresh() -> None:
    made: list[Environment] = []

    def make() -> Environment:
        made.append(BasicEnvironment())
        return made[-1]

    for _ in range(2):
        rolled_out("hello", make, told("hi"), tokenizer=tiny_tokenizer())

    assert len(made) == 2
