"""Agents in front of a model in this process: its tokens reach the record through every API."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from openai import AsyncOpenAI

from assay.gateway import Gateway, GatewaySession
from assay.providers import LocalClient
from assay.train import tokenize_sample
from assay.types import Endpoint, Sample, Trajectory
from mask_rollouts import recomputed
from model_apis import post_messages
from word_models import word_model

WORDS = ("red", "green", "blue")
QUESTIONS = ("first?", "second?", "third?")

Agent = Callable[[GatewaySession], Awaitable[None]]


async def chat_agent(session: GatewaySession) -> None:
    messages: list[Any] = []
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.key) as sdk:
        for question in QUESTIONS:
            messages.append({"role": "user", "content": question})
            text = ""
            async for chunk in await sdk.chat.completions.create(
                model="m", messages=messages, stream=True
            ):
                text += chunk.choices[0].delta.content or ""
            messages.append({"role": "assistant", "content": text})


async def responses_agent(session: GatewaySession) -> None:
    items: list[Any] = []
    async with AsyncOpenAI(base_url=session.base_url, api_key=session.key) as sdk:
        for question in QUESTIONS:
            items.append({"role": "user", "content": question})
            answer = await sdk.responses.create(model="m", input=items)
            items.append({"role": "assistant", "content": answer.output_text})


async def messages_agent(session: GatewaySession) -> None:
    turns: list[Any] = []
    for question in QUESTIONS:
        turns.append({"role": "user", "content": question})
        body = {"model": "m", "max_tokens": 50, "stream": True, "messages": turns}
        answer = await post_messages(session, body)
        turns.append({"role": "assistant", "content": answer["content"]})


@pytest.mark.parametrize("agent", [chat_agent, responses_agent, messages_agent])
def test_the_turns_of_a_conversation_become_one_training_sample(agent: Agent) -> None:
    local = word_model(WORDS, bias=8.0)

    async def scenario() -> Trajectory:
        client = LocalClient(local, Endpoint(provider="local", model="m", max_tokens=6, seed=3))
        async with Gateway(client) as gateway:
            session = gateway.open_session()
            await agent(session)
            return await session.seal()

    trajectory = asyncio.run(scenario())

    assert [call.error for call in trajectory.calls] == [None] * 3
    assert all(call.completion_ids and call.logprobs for call in trajectory.calls)
    assert trajectory.branches == []
    lineage = [(call.wire or {}).get("lineage_by") for call in trajectory.calls]
    assert lineage == [None, "tokens", "tokens"]
    (trained,) = tokenize_sample(Sample(id="s", trajectory=trajectory))
    sampled = sum(len(call.completion_ids or ()) for call in trajectory.calls)
    assert sum(trained.loss_mask) == sampled
    # Frozen weights: the model gives each token that counts the logprob recorded for it.
    known = recomputed(local.model, trained.tokens, 1.0)
    assert trained.rollout_log_probs is not None
    for counts, recorded, again in zip(
        trained.loss_mask, trained.rollout_log_probs, known, strict=True
    ):
        assert recorded == (pytest.approx(again, abs=1e-4) if counts else 0.0)
