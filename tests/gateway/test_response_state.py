"""Agents of the Responses API that leave their conversation on the server."""

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from assay.gateway import GatewaySession, expand_request
from assay.types import Trajectory
from gateway_servers import open_client, serve
from model_apis import ModelApi

PROVIDERS = ("openai-responses", "openai", "anthropic")


async def ask_twice(sdk: AsyncOpenAI, *, stream: bool) -> None:
    first = await sdk.responses.create(model="x", input="hello", instructions="Be brief.")
    more: Any = {"model": "x", "input": "and again", "previous_response_id": first.id}
    if stream:
        async with sdk.responses.stream(**more) as events:
            await events.get_final_response()
    else:
        await sdk.responses.create(**more)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_response_is_continued_with_the_recorded_conversation(
    provider: str, stream: bool
) -> None:
    async def scenario() -> tuple[Trajectory, dict[str, Any]]:
        async with serve(ModelApi(provider)) as (api, _, session), open_client(session) as sdk:
            await ask_twice(sdk, stream=stream)
            return await session.seal(), api.asked[1]

    trajectory, asked = asyncio.run(scenario())

    # The API does not carry instructions over, and the gateway does not either.
    assert [(each.role, each.text) for each in trajectory.messages] == [
        ("user", "hello"),
        ("assistant", "HELLO"),
        ("user", "and again"),
        ("assistant", "AND AGAIN"),
    ]
    assert trajectory.calls[1].parent == 0
    assert "previous_response_id" not in asked
    assert len(asked["input" if provider == "openai-responses" else "messages"]) == 3
    assert "previous_response_id" not in expand_request(trajectory.calls, 1)


def test_an_item_is_found_by_its_id() -> None:
    async def scenario() -> list[Any]:
        async with serve(ModelApi("openai-responses")) as (api, _, session):
            async with open_client(session) as sdk:
                first = await sdk.responses.create(model="x", input="hello")
                items: Any = [
                    {"role": "user", "content": "hello"},
                    {"type": "item_reference", "id": first.output[0].id},
                    {"role": "user", "content": "again"},
                ]
                await sdk.responses.create(model="x", input=items)
            return list(api.asked[1]["input"])

    sent = asyncio.run(scenario())

    assert [item.get("type") for item in sent] == [None, "message", None]
    assert sent[1]["content"][0]["text"] == "HELLO"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("previous_response_id", "resp_of_another_session"),
        ("conversation", "conv_1"),
        ("background", True),
        ("input", [{"type": "item_reference", "id": "msg_unknown"}]),
        ("input", [{"type": "item_reference", "id": ["msg_unknown"]}]),
    ],
)
def test_state_that_is_not_recorded_is_refused(field: str, value: Any) -> None:
    async def scenario() -> tuple[BadRequestError, GatewaySession, int]:
        async with serve(ModelApi("openai-responses")) as (api, _, session):
            async with open_client(session) as sdk:
                with pytest.raises(BadRequestError) as caught:
                    await sdk.responses.create(**{"model": "x", "input": "hello", field: value})
            return caught.value, session, len(api.asked)

    error, session, asked = asyncio.run(scenario())

    assert error.code == "unrecorded_state"
    assert field in error.message
    assert (asked, session.calls) == (0, [])
