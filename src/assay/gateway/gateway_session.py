"""One sample's access to the gateway: its address, key and recorded calls."""

import asyncio
import hmac
import json
import secrets
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from assay.types import REDACTED, CallPurpose, Redactor, Trajectory

from .declared_lineage import read_declared_lineage
from .dialects import Dialect
from .purposes import classify_call
from .recorded_call import RecordedCall
from .recorded_trajectory import build_recorded_trajectory, split_conversations
from .replay import ReplaySession
from .request_parts import PartPool
from .spending import CallSpending, GatewayLimits
from .translation import AnswerMemory

_LINEAGE_PREFIXES = ("x-claude-code-", "x-codex-", "x-session-", "x-parent-session-")
_LINEAGE_HEADERS = frozenset({"thread-id", "session-id"})
_MAX_HEADER_LENGTH = 4000
RETRY_HEADER = "x-stainless-retry-count"


class GatewaySession:
    """Records the calls that are made with its key, until it is sealed."""

    def __init__(
        self,
        session_id: str,
        root_url: str,
        *,
        limits: GatewayLimits,
        key: str | None = None,
        seed: int | None = None,
        hidden: Iterable[str] = (),
    ) -> None:
        self.id = session_id
        self.key = key or f"assay-{secrets.token_urlsafe(24)}"
        self.root_url = f"{root_url}/s/{session_id}"
        """The base URL of Anthropic's clients, which add /v1 themselves."""

        self.calls: list[RecordedCall] = []
        self.spending = CallSpending(limits)
        self.limit_reached: str | None = None
        """The limit that refused a call."""

        self.fault: str | None = None
        """Why the gateway itself failed."""

        self.replay: ReplaySession | None = None
        """Recorded calls that answer those of the agent. None: the model does."""

        self.answers = AnswerMemory()
        """The answers as the model wrote them, where its API is not that of the agent."""

        self._seed = seed
        self._sealed = False
        self._count = 0
        self._asked: Counter[Hashable] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        # Kept alive, so that errors anywhere redact the key.
        self._redactor = Redactor([self.key])
        self._hide_secrets = partial(
            hide_secrets,
            tuple(
                spelling.encode()
                for secret in (self.key, *hidden)
                for spelling in {secret, json.dumps(secret, ensure_ascii=False)[1:-1]}
            ),
        )
        self._pool = PartPool(self._hide_secrets)

    def __repr__(self) -> str:
        return f"GatewaySession({self.id}, {len(self.calls)} calls)"

    @property
    def base_url(self) -> str:
        """The base URL of OpenAI's clients."""
        return f"{self.root_url}/v1"

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables by which clients of common APIs find the gateway."""
        return {
            "OPENAI_BASE_URL": self.base_url,
            "OPENAI_API_BASE": self.base_url,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.root_url,
            "ANTHROPIC_API_KEY": self.key,
        }

    @property
    def is_sealed(self) -> bool:
        return self._sealed

    def accepts(self, key: str) -> bool:
        """Whether a key is that of the session, in constant time."""
        # Headers may contain any bytes, which are surrogates in a string.
        return hmac.compare_digest(key.encode("utf-8", "surrogateescape"), self.key.encode())

    def find_original(self, dialect: Dialect, body: Mapping[str, Any]) -> RecordedCall | None:
        """Return the call with the same body that a retry repeats, unless it failed."""
        request = self._pool.split(body, dialect.list_field)
        same = [
            call
            for call in reversed(self.calls)
            if call.request == request and call.purpose != "retry"
        ]
        # One that failed first: an agent may ask the same several times at once, and a retry must
        # not get the answer to another attempt.
        for call in same:
            if call.error is not None and not call.is_retried:
                call.is_retried = True
                return None
        return next((call for call in same if call.error is None), None)

    def classify(self, body: Mapping[str, Any], headers: Mapping[str, str]) -> CallPurpose:
        """Return the purpose of a request that is not recorded yet."""
        return classify_call(body, read_declared_lineage(self._collect_lineage_headers(headers)))

    def start_call(
        self, dialect: Dialect, body: Mapping[str, Any], raw: bytes, headers: Mapping[str, str]
    ) -> RecordedCall:
        """Record the request of a call."""
        declared = self._collect_lineage_headers(headers)
        request = self._pool.split(body, dialect.list_field)
        seed = self._seed
        if seed is not None:
            # An agent that asks the same again wants another answer.
            seed += self._asked[request.key]
            self._asked[request.key] += 1
        call = RecordedCall(
            number=self._count,
            dialect=dialect,
            request=request,
            hide_secrets=self._hide_secrets,
            size_bytes=len(raw),
            headers=declared,
            purpose=classify_call(body, read_declared_lineage(declared)),
            streamed=bool(body.get("stream")),
            seed=seed,
        )
        self._count += 1
        self.calls.append(call)
        return call

    def _collect_lineage_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {
            name: value[:_MAX_HEADER_LENGTH]
            for name, value in zip(map(str.lower, headers), headers.values(), strict=True)
            if name in _LINEAGE_HEADERS or name.startswith(_LINEAGE_PREFIXES)
        }
        return {
            name: self._hide_secrets(value.encode("utf-8", "replace")).decode("utf-8", "replace")
            for name, value in kept.items()
        }

    @contextmanager
    def track_task(self) -> Iterator[None]:
        """Let `seal` cancel the current task while the block runs."""
        # The task is that of a connection: afterwards it may serve another session.
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    async def seal(self) -> Trajectory:
        """Refuse further calls, cancel those in flight, and return the recorded rollout."""
        self._sealed = True
        current = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not current]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for call in self.calls:
            call.fail("the session ended before the answer")
        if not any(call.purpose == "turn" for call in self.calls):
            # Nothing that they could be beside: titles and summaries are the agent's own work.
            for call in self.calls:
                if call.purpose in ("title", "summary"):
                    call.purpose = "turn"
        return self.build_trajectory()

    def split_conversations(self) -> list[list[RecordedCall]]:
        """Return the calls so far by conversation."""
        return split_conversations(self.calls)

    def drop_calls(self, calls: Iterable[RecordedCall]) -> None:
        """Forget calls that ended, such as those of a conversation that was stored."""
        dropped = set(calls)
        self.calls = [call for call in self.calls if call not in dropped]
        # Parts of the other calls stay with them, and are shared again from now on.
        self._pool = PartPool(self._hide_secrets)

    def build_trajectory(self) -> Trajectory:
        """Return the calls so far as a trajectory."""
        return build_recorded_trajectory(self.calls, reason=self.limit_reached)


# Not a method: the calls refer to it, and a session in a reference cycle is freed late.
def hide_secrets(secrets: Iterable[bytes], data: bytes) -> bytes:
    """Return JSON without the keys of a session and of its model."""
    for secret in secrets:
        if secret in data:
            data = data.replace(secret, REDACTED.encode())
    return data
