"""One session: the sampling seeds of its calls, and the end of its memory."""

import asyncio
import gc
import weakref

import pytest
from aiohttp import ClientSession

from assay.gateway import Gateway, GatewayLimits, GatewaySession
from assay.gateway.dialects import OPENAI_CHAT
from assay.providers import connect
from model_apis import ModelApi


def list_seeds(seed: int | None, *texts: str) -> list[int | None]:
    session = GatewaySession("s", "http://127.0.0.1:1", limits=GatewayLimits(), seed=seed)
    bodies = [{"model": "m", "messages": [{"role": "user", "content": each}]} for each in texts]
    return [session.start_call(OPENAI_CHAT, body, b"", {}).seed for body in bodies]


def test_a_request_that_is_sent_again_has_another_seed() -> None:
    assert list_seeds(5, "one", "two", "one", "one", "two") == [5, 5, 6, 7, 6]


def test_without_a_seed_of_the_session_calls_have_none() -> None:
    assert list_seeds(None, "one", "one") == [None, None]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", ["chat/completions", "messages"])
def test_a_sealed_session_is_freed_without_the_garbage_collector(path: str, stream: bool) -> None:
    body = {"model": "x", "max_tokens": 5, "messages": [{"role": "user", "content": "hello"}]}

    async def scenario() -> object:
        async with (
            ModelApi() as api,
            connect(api.endpoint()) as client,
            Gateway(client) as gateway,
            ClientSession() as http,
        ):
            session = gateway.open_session()
            for _ in range(2):
                async with http.post(
                    f"{session.base_url}/{path}",
                    json={**body, "stream": stream},
                    headers={"x-api-key": session.key},
                ) as response:
                    assert response.status == 200
                    await response.read()
            await session.seal()
            gateway.forget(session)
            watched = weakref.ref(session)
            del session
            # The connection to the gateway is still open.
            await asyncio.sleep(0)
            return watched()

    gc.collect()
    gc.disable()
    try:
        assert asyncio.run(scenario()) is None
    finally:
        gc.enable()
