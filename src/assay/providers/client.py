"""The client that all providers share: cache, limiter, attempts, retries."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from assay.types import Endpoint, Message, ToolSpec

from .adapter import Attempt, ProviderAdapter, check_tools
from .attempt_errors import AttemptError, ErrorKind
from .cache import ResponseCache
from .clock import Timing
from .concurrency import Limiter
from .reply import ClientSettings, Reply
from .reply_redaction import Redactor
from .retry import RetryBudget

_FIRST_RETRIES = 3
"""Retries of a call while no connection to the server has worked yet: about two seconds."""


class ModelClient(Protocol):
    """Asks one model. What `connect()` returns is one; a test may bring its own."""

    endpoint: Endpoint

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """The model's next message. Raises `EndpointError` when there is none to be had."""

    async def close(self) -> None:
        """Let go of connections. A closed client is not used again."""


@dataclass(frozen=True)
class ClientDeps:
    """What a client works with."""

    limiter: Limiter
    cache: ResponseCache | None
    timing: Timing
    where: str
    """The endpoint as it is named in errors."""

    redactor: Redactor
    """Held, so that no failure of any part shows a secret of the endpoint while it is in use."""


class Client:
    """A `ModelClient` for any provider, and an async context manager that closes itself."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ClientSettings,
        speaker: ProviderAdapter,
        tools: ClientDeps,
    ) -> None:
        self.endpoint = endpoint
        self._speaker = speaker
        self._limiter = tools.limiter
        self._cache = tools.cache
        self._timing = tools.timing
        self._where = tools.where
        self._redactor = tools.redactor
        self._max_wait_s = settings.max_wait_s
        own = endpoint.max_retries
        self._max_retries = settings.max_retries if own is None else own
        self._reached = False

    def __repr__(self) -> str:
        return f"Client({self._where})"

    @property
    def limiter(self) -> Limiter:
        """How many requests are in flight, and how many may be."""
        return self._limiter

    @property
    def cache(self) -> ResponseCache | None:
        """The response cache, with its counts."""
        return self._cache

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of connections. A closed client is not used again."""
        await self._speaker.close()

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if the model cannot be offered tools."""
        await check_tools(self._speaker, tools)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """The model's next message. Raises `EndpointError` when there is none to be had."""
        if seed is None:
            seed = self.endpoint.seed
        if self._cache is None:
            return self._ask(messages, tools, seed)
        return self._ask_cached(self._cache, messages, tools, seed)

    async def _ask_cached(
        self,
        cache: ResponseCache,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        seed: int | None,
    ) -> Reply:
        key = cache.key(messages, tools, seed)
        reply = cache.find(key)
        if reply is None:
            reply = await self._ask(messages, tools, seed)
            cache.keep(key, reply)
        return reply

    async def _ask(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> Reply:
        request, lost = self._speaker.write(messages, tools, seed)
        limiter, clock = self._limiter, self._timing.clock
        patience: RetryBudget | None = None
        number = 0
        while True:
            number += 1
            if not limiter.try_acquire():
                await limiter.acquire()
            started = clock()
            try:
                answer = await self._speaker.send(request)
                latency_s = clock() - started
                reply = self._speaker.read(
                    answer, Attempt(latency_s, number, seed, len(messages), lost)
                )
            except AttemptError as caught:
                fault = caught
            else:
                limiter.succeeded(latency_s)
                self._reached = True
                return reply
            finally:
                limiter.release()
            limiter.failed(fault)
            if fault.kind is not ErrorKind.UNREACHABLE:
                self._reached = True
            if patience is None:
                patience = self._build_retry_budget()
            # Waits without a slot: others may go on, and a cut limit is reached at once.
            await self._timing.sleep(patience.wait_s(fault, attempts=number))

    def _build_retry_budget(self) -> RetryBudget:
        # An address at which nobody ever answered is rather wrong than busy.
        most = self._max_retries if self._reached else min(self._max_retries, _FIRST_RETRIES)
        return RetryBudget(
            max_retries=most,
            max_wait_s=self._max_wait_s,
            where=self._where,
            timing=self._timing,
        )
