"""A gateway in front of a scripted model, and clients for it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession
from openai import AsyncOpenAI

from assay.gateway import (
    Gateway,
    GatewayLimits,
    GatewaySession,
    GatewaySettings,
)
from assay.providers import connect
from model_apis import ModelApi

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def serve(
    api: ModelApi | None = None,
    *,
    settings: GatewaySettings | None = None,
    limits: GatewayLimits | None = None,
    **fields: Any,
) -> AsyncIterator[tuple[ModelApi, Gateway, GatewaySession]]:
    async with (
        api or ModelApi() as model,
        connect(model.endpoint(**fields)) as client,
        Gateway(client, settings, limits=limits) as gateway,
    ):
        yield model, gateway, gateway.open_session()


def open_client(session: GatewaySession, **options: Any) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=session.base_url, api_key=session.key, max_retries=0, **options)


async def post(
    url: str, body: Any, *, key: str = "", headers: dict[str, str] | None = None
) -> tuple[int, dict[str, str], bytes]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        ClientSession() as http,
        http.post(url, data=data, headers={**given, **(headers or {})}) as response,
    ):
        return response.status, dict(response.headers), await response.read()
