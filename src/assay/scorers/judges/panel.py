"""A panel of judge models: several votes of each, with retries, every call counted."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, ModelClient, connect, format_endpoint_name
from assay.types import Endpoint, describe_endpoint, stable_id

from .judge_cost import Spending
from .judge_prompt import JudgePrompt

JudgeRef = str | Endpoint | ModelClient
"""A judge model: `provider:model`, an endpoint, or a client."""

_ReplyT = TypeVar("_ReplyT")


@dataclass(frozen=True)
class JudgeSettings:
    """Settings of the calls to judges."""

    retries: int = 2
    """Retries after a reply that cannot be parsed."""

    longest_transcript: int = 400_000
    """Approximate limit of the transcript in characters. Beyond it the longest texts are cut."""

    require_key: bool = False
    """Whether a reply must repeat the key of its prompt, even when it is the only candidate."""

    client: ClientSettings = field(default_factory=ClientSettings)

    def __post_init__(self) -> None:
        for name, least in (("retries", 0), ("longest_transcript", 1000)):
            value = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"{name}={value!r} is not a whole number of at least {least}",
                    where="JudgeSettings",
                )


@dataclass(frozen=True)
class Vote(Generic[_ReplyT]):
    """The outcome of one vote of one judge."""

    judge: str
    given: _ReplyT | None
    """The parsed part of the reply."""

    problem: str | None = None
    """Why the reply is incomplete or missing."""

    failure: EndpointError | None = None
    """Why the call failed."""


class Panel:
    """One or more judges with a number of votes each."""

    def __init__(
        self, judges: JudgeRef | Sequence[JudgeRef], votes: int, settings: JudgeSettings
    ) -> None:
        listed = [judges] if isinstance(judges, str) or not isinstance(judges, Sequence) else judges
        if not listed:
            raise ConfigError("no judge was given", where="judge()")
        if isinstance(votes, bool) or not isinstance(votes, int) or votes < 1:
            raise ConfigError(f"votes={votes!r} is not a number above 0", where="judge()")
        self._members = [_PanelMember(each, settings.client) for each in listed]
        names = [format_endpoint_name(each.endpoint) for each in self._members]
        # Equal names are numbered, so that votes can be attributed.
        self.names = tuple(
            name if names.count(name) == 1 else f"{name} #{names[: index + 1].count(name)}"
            for index, name in enumerate(names)
        )
        self.votes = votes
        self._retries = settings.retries

    @property
    def digest(self) -> str:
        """A hash of the endpoints. Retries and timeouts do not change it: they change no score."""
        return stable_id([describe_endpoint(member.endpoint) for member in self._members])[:8]

    async def close(self) -> None:
        """Close the connections of the judges, except those of clients that were passed in."""
        for member in self._members:
            await member.close()

    async def ask(
        self,
        question: Callable[[], JudgePrompt],
        read: Callable[[str, JudgePrompt], tuple[_ReplyT | None, str | None]],
        spending: Spending,
    ) -> list[Vote[_ReplyT]]:
        """Collect the votes of every judge, each with a prompt of its own.

        `read` parses a reply into its value and the reason why it is incomplete. Raises
        `AccessDenied` when a judge refuses the key; other failures are votes without a reply.
        """
        ballots = []
        for name, member in zip(self.names, self._members, strict=True):
            client = await member.client()
            first = client.endpoint.seed
            for number in range(self.votes):
                # With the same seed all votes of a judge would be the same vote.
                seed = None if first is None else first + number
                ballots.append(_VoteRequest(name, client, seed, self._retries, spending))
        votes = await asyncio.gather(*(each.cast(question(), read) for each in ballots))
        for vote in votes:
            if isinstance(vote.failure, AccessDenied):
                raise vote.failure
        return votes


class _PanelMember:
    """A judge with one connection for each event loop."""

    # A scorer outlives event loops, and an HTTP pool is bound to the loop that opened it. A client
    # that was passed in is used unchanged and never closed here: it belongs to its creator.

    def __init__(self, judge: JudgeRef, settings: ClientSettings) -> None:
        self._settings = settings
        self._given = not isinstance(judge, str | Endpoint)
        # Connect now, so that a wrong endpoint is reported before the first paid call.
        self._client = connect(judge, settings) if isinstance(judge, str | Endpoint) else judge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: AsyncGenerator[None, None] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process connects for itself: connections cannot be sent to it.
        return (_PanelMember, (self._client if self._given else self.endpoint, self._settings))

    @property
    def endpoint(self) -> Endpoint:
        return self._client.endpoint

    async def client(self) -> ModelClient:
        """Return the client for the running event loop."""
        loop = asyncio.get_running_loop()
        if not self._given and self._loop is not loop:
            if self._loop is not None:
                self._client = connect(self.endpoint, self._settings)
            self._loop, self._lease = loop, _close_with_loop(self._client)
            await anext(self._lease)
        return self._client

    async def close(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None and self._loop is asyncio.get_running_loop():
            await lease.aclose()
            self._client = connect(self.endpoint, self._settings)
            self._loop = None


async def _close_with_loop(client: ModelClient) -> AsyncGenerator[None, None]:
    # asyncio closes open async generators when a loop shuts down. The generator stays suspended
    # while the client is in use, so the client is closed with its loop without a call of `close`.
    try:
        yield
    finally:
        await client.close()


@dataclass(frozen=True)
class _VoteRequest:
    """The call, with its retries, for one vote of one judge."""

    judge: str
    client: ModelClient
    seed: int | None
    retries: int
    spending: Spending

    async def cast(
        self,
        asked: JudgePrompt,
        read: Callable[[str, JudgePrompt], tuple[_ReplyT | None, str | None]],
    ) -> Vote[_ReplyT]:
        messages = asked.messages
        given: _ReplyT | None = None
        problem: str | None = None
        for attempt in range(1 + self.retries):
            try:
                reply = await self.client.complete(messages, seed=self.seed)
            except EndpointError as error:
                self.spending.failed += 1
                return Vote(self.judge, given, problem, error)
            self.spending.add(reply.call, again=attempt > 0)
            text = reply.message.text
            given, problem = read(text, asked)
            if problem is None:
                break
            # Otherwise the user would look for the mistake in the rubric.
            if reply.call.finish_reason == "length":
                problem += " (the answer was cut off at its token limit)"
            messages = asked.build_retry(text, problem)
        return Vote(self.judge, given, problem)
