"""The clients of all providers: cache, concurrency limit, attempts and retries."""

from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

from assay.types import Endpoint, Message, ToolSpec

from .adapter import Attempt, ProviderAdapter, check_tools
from .attempt_errors import AttemptError, ErrorKind, classify_status
from .clock import Timing
from .concurrency import Limiter
from .reply import ClientSettings, Reply
from .reply_redaction import Redactor

if TYPE_CHECKING:
    from .cache import ResponseCache

# Retries while no connection to the server has succeeded yet: about two seconds.
_FIRST_RETRIES = 3
_FIRST_BACKOFF_S = 0.5
_MAX_BACKOFF_S = 60.0
# An invalid answer is rarely transient: one retry, in case a proxy sent it.
_GARBLED_RETRIES = 1
# Keeps the power finite: retries after a `Retry-After` are not counted.
_MAX_DOUBLINGS = 16


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
    cache: "ResponseCache | None"
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
        self.limiter = deps.limiter
        self.cache = deps.cache
        self._timing = deps.timing
        self._where = deps.where
        self._redactor = deps.redactor
        self._max_wait_s = settings.max_wait_s
        own = endpoint.max_retries
        self._max_retries = settings.max_retries if own is None else own
        self._reached = False

    def __repr__(self) -> str:
        return f"Client({self._where})"

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
        if self.cache is None:
            return self._ask(messages, tools, seed)
        return self._ask_cached(self.cache, messages, tools, seed)

    def write_request(
        self, messages: Sequence[Message], *, tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[bytes, Mapping[str, int] | None]:
        """Return the body of a request to make without this client, for servers with an address.

        The counts are those of fields that the provider's format cannot represent.
        """
        body, lost = self._adapter.write(messages, tools, seed)
        assert isinstance(body, bytes)
        return body, lost

    def read_answer(
        self,
        answer: Any,
        *,
        latency_s: float,
        message_index: int,
        seed: int | None = None,
        lost: Mapping[str, int] | None = None,
    ) -> Reply:
        """Parse an answer of the server that was requested without this client.

        Raises `EndpointError` if it contains no reply.
        """
        attempt = Attempt(latency_s, 1, seed, message_index, lost)
        try:
            return self._adapter.read(answer, attempt)
        except AttemptError as fault:
            raise fault.error(where=self._where, attempts=1) from None

    def record_request(self, *, latency_s: float, status: int | None) -> None:
        """Let the concurrency limit learn from a request that was made without this client.

        A status of None is a failed connection.
        """
        if status == 200:
            self.limiter.record_success(latency_s)
            return
        kind = ErrorKind.UNREACHABLE if status is None else classify_status(status)
        self.limiter.record_failure(AttemptError(kind, "a request failed", status))

    async def _ask_cached(
        self,
        cache: "ResponseCache",
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
        limiter, clock = self.limiter, self._timing.clock
        retries: RetryBudget | None = None
        waited_s = 0.0
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
                limiter.record_success(latency_s)
                self._reached = True
                if not waited_s:
                    return reply
                call = reply.call.model_copy(update={"retry_wait_s": waited_s})
                return reply._replace(call=call)
            finally:
                limiter.release()
            limiter.record_failure(fault)
            if fault.kind is not ErrorKind.UNREACHABLE:
                self._reached = True
            if retries is None:
                # An address that never answered is more likely wrong than busy: fail early.
                most = self._max_retries
                retries = RetryBudget(
                    max_retries=most if self._reached else min(most, _FIRST_RETRIES),
                    max_wait_s=self._max_wait_s,
                    where=self._where,
                    timing=self._timing,
                )
            # Sleep without a slot: other calls proceed, and a reduced limit takes effect at once.
            started = clock()
            await self._timing.sleep(retries.wait_s(fault, attempts=number))
            waited_s += clock() - started


class RetryBudget:
    """The retries of one call, limited in number and total wait.

    The wait before retry n is a random part of 0.5 s times 2 to the n, at most 60 s ("full
    jitter"), so that callers which failed together do not retry together. A `Retry-After` is never
    shortened. It also does not count towards `max_retries`, since a server that sends one is
    working; `max_wait_s` limits it.
    """

    def __init__(self, *, max_retries: int, max_wait_s: float, where: str, timing: Timing) -> None:
        self._max_retries = max_retries
        self._max_wait_s = max_wait_s
        self._where = where
        self._timing = timing
        self._waited_s = 0.0
        self._rounds = 0
        self._counted = 0
        self._garbled = 0

    def wait_s(self, fault: AttemptError, *, attempts: int) -> float:
        """Return the wait before the next attempt. Raises `EndpointError` if there is none."""
        if fault.permanent or self._exhausts_budget(fault):
            raise fault.error(where=self._where, attempts=attempts)
        longest = _FIRST_BACKOFF_S * 2.0 ** min(self._rounds, _MAX_DOUBLINGS)
        wait = min(longest, _MAX_BACKOFF_S) * self._timing.chance()
        self._rounds += 1
        left = self._max_wait_s - self._waited_s
        retry_after = fault.retry_after_s
        if retry_after is not None:
            # With jitter, so that callers with the same `Retry-After` do not arrive together.
            wait = max(min(retry_after + wait / 4, left), retry_after)
        if wait > left:
            why = f"only {left:.3g} s are left of the {self._max_wait_s:g} s wait limit of one call"
            if retry_after is not None:
                why = (
                    f"the server asks to wait {retry_after:.3g} s, but {left:.3g} s are left "
                    f"of the {self._max_wait_s:g} s wait limit of one call"
                )
            raise fault.error(where=self._where, attempts=attempts, why=why)
        self._waited_s += wait
        return wait

    def _exhausts_budget(self, fault: AttemptError) -> bool:
        if self._max_retries == 0:
            return True
        if fault.kind is ErrorKind.GARBLED:
            self._garbled += 1
            if self._garbled > _GARBLED_RETRIES:
                return True
        if fault.kind is not ErrorKind.THROTTLED or fault.retry_after_s is None:
            self._counted += 1
        return self._counted > self._max_retries


class ClientWrapper:
    """A client that passes every call on to another one. Subclasses add to it."""

    def __init__(self, client: ModelClient) -> None:
        self.endpoint = client.endpoint
        self.client = client
        """The client that calls are passed on to."""

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if the model cannot be offered tools."""
        await check_tools(self.client, tools)

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `EndpointError` if the call fails."""
        reply = await self.client.complete(messages, tools=tools, seed=seed)
        self._observe(reply)
        return reply

    def _observe(self, reply: Reply) -> None:
        """Read an answer before it is returned."""

    async def close(self) -> None:
        """Close the connections of the other client."""
        await self.client.close()
