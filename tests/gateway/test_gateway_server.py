"""`Gateway`: agents reach their model through it, and their calls are recorded."""

import asyncio
from typing import Any

from openai import AsyncOpenAI

from assay.gateway import Gateway, GatewaySession, expand_request
from assay.providers import connect
from assay.types import Trajectory
from model_apis import ModelApi


def open_client(session: GatewaySession) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0)


def test_a_call_reaches_the_model_and_is_recorded() -> None:
    async def scenario() -> tuple[str | None, dict[str, Any], Trajectory]:
        async with ModelApi() as api, connect(api.endpoint()) as client, Gateway(client) as gateway:
            session = gateway.open_session()
            async with open_client(session) as agent:
                answer = await agent.chat.completions.create(
                    model="any", messages=[{"role": "user", "content": "hello"}], temperature=0.5
                )
            return answer.choices[0].message.content, api.asked[0], await session.seal()

    text, asked, trajectory = asyncio.run(scenario())

    assert text == "HELLO"
    assert asked["model"] == "upstream-model"
    assert [message.text for message in trajectory.messages] == ["hello", "HELLO"]
    (call,) = trajectory.calls
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (20, 5)
    assert call.sampling["temperature"] == 0.5
    assert expand_request(trajectory.calls, 0)["model"] == "any"
