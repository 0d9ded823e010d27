"""The client of all providers: cache, concurrency limit, attempts and retries."""

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
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

# Retries while no connection to the server has succeeded yet: about two seconds.
_FIRST_RETRIES = 3


class ModelClient(Protocol):
    """Calls one model. `connect()` returns one; tests may implement their own."""

    endpoint: Endpoint

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `EndpointError` if the call fails."""

    async def close(self) -> None:
        """Close the connections. A closed client cannot be used again."""


@dataclass(frozen=True)
class ClientDeps:
    """The dependencies of a client."""

    limiter: Limiter
    cache: ResponseCache | None
    timing: Timing
    where: str
    """The endpoint as it is named in errors."""

    redactor: Redactor
    """Kept alive, so that errors anywhere redact the secrets of the endpoint."""


class Client:
    """A `ModelClient` for any provider, and an async context manager that closes itself."""

    def __init__(
        self,
        endpoint: Endpoint,
        settings: ClientSettings,
        adapter: ProviderAdapter,
        deps: ClientDeps,
    ) -> None:
        self.endpoint = endpoint
        self._adapter = adapter
        self._limiter = deps.limiter
        self._cache = deps.cache
        self._timing = deps.timing
        self._where = deps.where
        self._redactor = deps.redactor
        self._max_wait_s = settings.max_wait_s
        own = endpoint.max_retries
        self._max_retries = settings.max_retries if own is None else own
        self._reached = False

    def __repr__(self) -> str:
        return f"Client({self._where})"

    @property
    def limiter(self) -> Limiter:
        """The limiter, with the number of requests in flight."""
        return self._limiter

    @property
    def cache(self) -> ResponseCache | None:
        """The response cache, with its counts."""
        return self._cache

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. A closed client cannot be used again."""
        await self._adapter.close()

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if the model cannot be offered tools."""
        await check_tools(self._adapter, tools)

    def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Coroutine[Any, Any, Reply]:
        """Return the model's next message. Raises `EndpointError` if the call fails."""
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
        request, lost = self._adapter.write(messages, tools, seed)
        limiter, clock = self._limiter, self._timing.clock
        retries: RetryBudget | None = None
        number = 0
        while True:
            number += 1
            if not limiter.try_acquire():
                await limiter.acquire()
            started = clock()
            try:
                answer = await self._adapter.send(request)
                latency_s = clock() - started
                reply = self._adapter.read(
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
            if retries is None:
                retries = self._build_retry_budget()
            # Sleep without a slot: other calls proceed, and a reduced limit takes effect at once.
            await self._timing.sleep(retries.wait_s(fault, attempts=number))

    def _build_retry_budget(self) -> RetryBudget:
        # An address that never answered is more likely wrong than busy: fail early.
        most = self._max_retries if self._reached else min(self._max_retries, _FIRST_RETRIES)
        return RetryBudget(
            max_retries=most,
            max_wait_s=self._max_wait_s,
            where=self._where,
            timing=self._timing,
        )
