"""Rollouts that agents made over HTTP, in conversations that fork in every way."""

import asyncio
import random
from functools import cache
from typing import Any

from aiohttp import ClientSession

from assay.gateway import Gateway, GatewaySession
from assay.providers.in_process import LocalClient, LocalModel
from assay.types import Endpoint, Sample
from mask_rollouts import TEMPERATURE, tokenizer_of, weights_of

_TITLE = "You are a title generator."
_SUMMARY = "Create a detailed summary of our conversation."
_WORDS = ("hello", "what is the answer?", "and what else?", "the user", "1 + 1", "go on")
_QUESTIONS = 9


class ForkingAgent:
    """Talks to its model at random: it branches, goes back, summarises and asks again."""

    def __init__(self, session: GatewaySession, http: ClientSession, seed: int) -> None:
        self._session = session
        self._http = http
        self._chance = random.Random(seed)
        self._name = "main" if seed % 2 else None
        self._messages: list[dict[str, Any]] = []
        self._children = 0

    async def run(self) -> None:
        moves = (self.go_on, self.edit, self.resample, self.delegate, self.compact, self.title)
        await self.go_on()
        for _ in range(_QUESTIONS):
            await self._chance.choice((self.go_on, *moves))()

    async def go_on(self) -> None:
        self._messages.append(self._user())
        self._messages.append(await self._ask(self._messages))

    async def edit(self) -> None:
        """Another question in the place of the last one."""
        self._messages[-2:] = [self._user("something else, ")]
        self._messages.append(await self._ask(self._messages))

    async def resample(self) -> None:
        """Another answer to the same question."""
        self._messages[-1] = await self._ask(self._messages[:-1])

    async def delegate(self) -> None:
        """A subagent of two turns, between two turns of this conversation."""
        self._children += 1
        child = f"child {self._children}"
        messages = [self._user("You are a subagent: ")]
        for question in (None, self._user()):
            messages += [question] if question else []
            messages.append(await self._ask(messages, name=child))
            if question is None:
                await self.go_on()

    async def compact(self) -> None:
        """A summary, with which the conversation starts anew."""
        summary = await self._ask([*self._messages, {"role": "user", "content": _SUMMARY}])
        text = f"This was said before: {summary['content']}"
        self._messages = [{"role": "user", "content": text}]
        self._messages.append(await self._ask(self._messages))

    async def title(self) -> None:
        """Calls beside the conversation, and one that is marked as a retry."""
        system = {"role": "system", "content": _TITLE}
        await self._ask([system, self._messages[0]])
        await self._ask(self._messages[:-1], max_tokens=1)
        question = self._user()
        for retry in ("0", "1"):
            await self._ask([*self._messages, question], retry=retry)

    def _user(self, start: str = "") -> dict[str, Any]:
        return {"role": "user", "content": start + self._chance.choice(_WORDS)}

    async def _ask(
        self,
        messages: list[dict[str, Any]],
        *,
        name: str | None = None,
        retry: str = "0",
        **settings: Any,
    ) -> dict[str, Any]:
        headers = {
            "Authorization": f"Bearer {self._session.key}",
            "x-stainless-retry-count": retry,
        }
        if self._name is not None:
            headers["x-session-id"] = name or self._name
        if self._name is not None and name is not None:
            headers["x-parent-session-id"] = self._name
        url = f"{self._session.base_url}/chat/completions"
        body = {"model": "m", "messages": messages, **settings}
        async with self._http.post(url, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            message: dict[str, Any] = (await response.json())["choices"][0]["message"]
        return {"role": "assistant", "content": message["content"] or ""}


@cache
def forked_rollout(name: str, seed: int) -> Sample:
    """A rollout behind the gateway, of a model with frozen weights."""

    async def scenario() -> Sample:
        local = LocalModel(weights_of(name), tokenizer_of(name), threads=1)
        endpoint = Endpoint(provider="local", model="m", temperature=TEMPERATURE, max_tokens=10)
        async with Gateway(LocalClient(local, endpoint)) as gateway, ClientSession() as http:
            session = gateway.open_session(seed=seed)
            await ForkingAgent(session, http, seed).run()
            assert session.fault is None
            return Sample(id=f"{name} {seed}", trajectory=await session.seal())

    return asyncio.run(scenario())
