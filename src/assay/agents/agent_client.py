"""The model of a run, as an agent calls it: every call is recorded."""

import asyncio
from collections.abc import Sequence
from typing import Any

from assay.errors import ConfigError, RunStopped
from assay.providers import ClientWrapper, ModelClient, Reply
from assay.types import Boundary, Message, ModelCall, ToolSpec, Trajectory


class AgentClient(ClientWrapper):
    """The client of one rollout. Its record survives a rollout that fails.

    Agents may run in another thread or event loop than the model's connections.
    """

    def __init__(self, client: ModelClient) -> None:
        super().__init__(client)
        self._loop = asyncio.get_running_loop()
        self._messages: list[Message] = []
        self._calls: list[ModelCall] = []
        self._error: BaseException | None = None
        self._recorded: list[Message] = []
        self.stopped: RunStopped | None = None
        """The limit of the run that refused a call."""

    @property
    def calls(self) -> list[ModelCall]:
        """The calls so far."""
        return self._calls

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `EndpointError` if the call fails."""
        call = self._complete(messages, tools, seed)
        if asyncio.get_running_loop() is self._loop:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def ask(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Like `complete`, for functions that are not async."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            call = self._complete(messages, tools, seed)
            return asyncio.run_coroutine_threadsafe(call, self._loop).result()
        raise ConfigError(
            "ask() cannot be called from async code, which it would block",
            where="RunContext.client",
            hint="await complete() instead",
        )

    async def _complete(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> Reply:
        sent = list(messages)
        self._messages, self._error = [*sent], None
        try:
            reply = await super().complete(messages, tools=tools, seed=seed)
        except (Exception, asyncio.CancelledError) as error:
            self._error = error
            if isinstance(error, RunStopped):
                self.stopped = error
            raise
        self._calls.append(self._add_exchange(sent, tools, reply))
        self._messages = self._recorded = [*sent, reply.message]
        return reply

    def _add_exchange(
        self, sent: list[Message], tools: Sequence[ToolSpec], reply: Reply
    ) -> ModelCall:
        """Record the request, which a trajectory need not contain: agents ask as they like."""
        kept = _count_kept(self._recorded, sent)
        exchange: dict[str, Any] = {
            "kept": kept,
            "added": [message.to_dict() for message in sent[kept:]],
            "answer": reply.message.to_dict(),
        }
        if tools:
            written = [tool.model_dump(mode="json", exclude_defaults=True) for tool in tools]
            exchange["tools"] = written
        return reply.call.model_copy(update={"exchange": exchange})

    async def close(self) -> None:
        """Do nothing: other rollouts share the client."""

    def find_boundary(self, error: BaseException) -> Boundary | None:
        """Return `ENDPOINT` for an error raised by a model call; None for any other."""
        cancelled = isinstance(error, asyncio.CancelledError)
        # `CancelledError` is a new object in each task that it passes through: compare the type.
        is_same = cancelled and isinstance(self._error, asyncio.CancelledError)
        return Boundary.ENDPOINT if is_same or error is self._error else None

    def trajectory(self, reason: str) -> Trajectory | None:
        """Return the last conversation and all calls; None if no call was made."""
        if not self._messages:
            return None
        return Trajectory(messages=self._messages, calls=self._calls, termination_reason=reason)


def _count_kept(before: Sequence[Message], messages: Sequence[Message]) -> int:
    """Return how many messages of the call before, and of its answer, are sent again."""
    pairs = enumerate(zip(before, messages, strict=False))
    shared = min(len(before), len(messages))
    return next((n for n, (old, new) in pairs if old is not new and old != new), shared)
