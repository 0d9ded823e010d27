"""The judges that are asked, and how: several of them, patiently, every call counted."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, ModelClient, connect, format_endpoint_name, parse_model
from assay.types import Endpoint, describe_endpoint, stable_id

from .judge_cost import Spending
from .judge_prompt import JudgePrompt

JudgeRef = str | Endpoint | ModelClient
"""Who judges: `provider:model`, an endpoint, or a client."""

_ReplyT = TypeVar("_ReplyT")


@dataclass(frozen=True)
class JudgeSettings:
    """How judges are asked."""

    retries: int = 2
    """How often a judge is asked again after an answer that cannot be read."""

    longest_transcript: int = 400_000
    """Characters that a judge is shown, about. Beyond it the longest texts are cut."""

    require_key: bool = False
    """Whether an answer must have the key of its question, also where it is the only one."""

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
    """What came of asking one judge once."""

    judge: str
    given: _ReplyT | None
    """The answer as far as it could be read."""

    problem: str | None = None
    """Why it is not whole, or not there."""

    failure: EndpointError | None = None
    """Why the judge could not be asked."""


class Panel:
    """One judge or a panel, each asked a number of times."""

    def __init__(
        self, judges: JudgeRef | Sequence[JudgeRef], votes: int, settings: JudgeSettings
    ) -> None:
        listed = [judges] if isinstance(judges, str) or not isinstance(judges, Sequence) else judges
        if not listed:
            raise ConfigError("no judge was given", where="judge()")
        if isinstance(votes, bool) or not isinstance(votes, int) or votes < 1:
            raise ConfigError(f"votes={votes!r} is not a number above 0", where="judge()")
        self._seats = [_PanelMember(each, settings.client) for each in listed]
        self.names = tuple(
            _number_duplicates([format_endpoint_name(each.endpoint) for each in self._seats])
        )
        self.votes = votes
        self._retries = settings.retries

    @property
    def digest(self) -> str:
        """Tells judges apart that are asked in different ways; how patiently does not count."""
        return stable_id([describe_endpoint(seat.endpoint) for seat in self._seats])[:8]

    async def close(self) -> None:
        """Let go of the judges' connections. Those of clients that were given stay."""
        for seat in self._seats:
            await seat.close()

    async def ask(
        self,
        question: Callable[[], JudgePrompt],
        read: Callable[[str, JudgePrompt], tuple[_ReplyT | None, str | None]],
        spending: Spending,
    ) -> list[Vote[_ReplyT]]:
        """Ask every judge as often as agreed, each time a question of its own.

        `read` gives what an answer says and why it is not whole. Raises `AccessDenied` when a
        judge refuses the key; other failures are votes without an answer.
        """
        ballots = [
            _VoteRequest(
                name, client, _derive_vote_seed(client.endpoint, number), self._retries, spending
            )
            for name, seat in zip(self.names, self._seats, strict=True)
            for client in [await seat.client()]
            for number in range(self.votes)
        ]
        votes = await asyncio.gather(*(each.cast(question(), read) for each in ballots))
        for vote in votes:
            if isinstance(vote.failure, AccessDenied):
                raise vote.failure
        return votes


class _PanelMember:
    """One judge, connected to anew in each event loop: a scorer outlives them.

    A client that was given is used as it is, and left open: it belongs to whoever made it.
    """

    def __init__(self, judge: JudgeRef, settings: ClientSettings) -> None:
        if isinstance(judge, str):
            judge = parse_model(judge)
        self._settings = settings
        self._given = not isinstance(judge, Endpoint)
        # Connected now, so that what is wrong with an endpoint is found before anything is paid.
        self._client = connect(judge, settings) if isinstance(judge, Endpoint) else judge
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lease: AsyncGenerator[None, None] | None = None

    @property
    def endpoint(self) -> Endpoint:
        return self._client.endpoint

    async def client(self) -> ModelClient:
        """The judge as it can be asked in the running event loop."""
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
    """Held open while a client is in use. Ending it, as the loop does at its end, hangs up."""
    try:
        yield
    finally:
        await client.close()


@dataclass(frozen=True)
class _VoteRequest:
    """One vote to be got from one judge."""

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
            said = reply.message.text
            given, problem = read(said, asked)
            if problem is None:
                break
            if reply.call.finish_reason == "length":
                problem += " (the answer was cut off at its token limit)"
            messages = asked.build_retry(said, problem)
        return Vote(self.judge, given, problem)


def _number_duplicates(names: list[str]) -> list[str]:
    """The names, numbered where one model is on the panel more than once."""
    return [
        name if names.count(name) == 1 else f"{name} #{names[: place + 1].count(name)}"
        for place, name in enumerate(names)
    ]


def _derive_vote_seed(endpoint: Endpoint, number: int) -> int | None:
    """Votes with one seed would be the same vote."""
    return None if endpoint.seed is None else endpoint.seed + number
