"""Replay: recorded calls answer the calls of a later run, without a model.

A call is answered by the first recorded call of the same rollout with the same request that has
answered none yet. A request contains its whole conversation, so equal requests are at the same
place of the same conversation. See `normalize_request` for what may differ.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_core import from_json

from assay.errors import ConfigError, EndpointError, ReplayDifference
from assay.providers import ClientWrapper, ModelClient, Reply
from assay.types import (
    Endpoint,
    Message,
    ModelCall,
    ToolSpec,
    Trajectory,
    Usage,
    describe_endpoint,
)

from .recorded_exchange import OWN_DIALECT, RecordedExchange, build_own_request
from .recording_file import RecordedRollout, Recording
from .request_difference import find_difference
from .request_normalization import RequestDigester, RequestDigests, normalize_request
from .request_parts import PartPool, RequestParts, count_common_prefix

ReplayMissing = Literal["fail", "live"]
"""What happens to a call that is not recorded: its sample fails, or the model is asked."""

# Of those that are not kept: agents at the same gateway take turns.
_MAX_LOADED = 8
_HINT = "record the run again, or ask the model: replay_missing=live; see `assay docs replay`"


class Replay:
    """A recording that answers the rollouts of one run."""

    def __init__(self, recording: Recording, *, missing: ReplayMissing = "fail") -> None:
        self.recording = recording
        self.asks_model = missing == "live"
        self.replayed = 0
        """Calls that were answered from the recording."""

        self.live = 0
        """Calls that the model answered."""

        self._about: dict[str, Any] | None = None

    def open(self, sample: str, repeat: int) -> "ReplaySession":
        """Return the recorded calls of one rollout."""
        found = self.recording.load(sample, repeat)
        return ReplaySession(self, [] if found is None else [found])

    def open_all(self) -> "ReplaySession":
        """Return all recorded calls as those of one session."""
        return ReplaySession(self, self.recording.load_all(), keeps=False)

    def build_client(self, sample: str, repeat: int, client: ModelClient) -> "ReplayClient":
        """Return the model of one rollout. `client` answers calls that are not recorded."""
        if self._about is None:
            self._about = describe_endpoint(client.endpoint)
        return ReplayClient(self.open(sample, repeat), client, self._about)

    def describe_missing(self) -> str:
        """Name the recording in the reason for a difference."""
        return f"the recording of run {self.recording.header.run}"


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A call that can answer, and where it is."""

    sample: str
    repeat: int
    position: int
    failed: bool


class ReplaySession:
    """The recorded calls of one rollout, each of which answers once; an error again and again."""

    def __init__(
        self, replay: Replay, rollouts: Iterable[RecordedRollout], *, keeps: bool = True
    ) -> None:
        self._replay = replay
        self._left: dict[bytes, deque[_Recorded]] = {}
        self._errors: set[bytes] = set()
        self._digester = RequestDigester()
        self._kept: RecordedRollout | None = None
        self._loaded: OrderedDict[tuple[str, int], RecordedRollout] = OrderedDict()
        self._recorded = self._asked = 0
        self.difference: ReplayDifference | None = None
        """The first call that is not recorded, unless the model may be asked."""

        self._duration_s: float | None = None
        self._live = 0
        for rollout in rollouts:
            self._add(rollout)
            self._duration_s = rollout.exchanges[0].duration_s
            self._kept = rollout if keeps else None

    def _add(self, rollout: RecordedRollout) -> None:
        for exchange, body in zip(rollout.exchanges, rollout.bodies, strict=True):
            recorded = _Recorded(
                exchange.sample, exchange.repeat, exchange.call, exchange.answer is None
            )
            digests = self._digester.digest(_split_request(body, exchange.list_field))
            known = self._left.setdefault(digests.build_key(_name_kind(exchange)), deque())
            if known and known[-1].failed:
                known.pop()  # the agent tried again after an error
                self._recorded -= 1
            known.append(recorded)
            self._recorded += 1

    def find(self, kind: str, list_field: str, body: Mapping[str, Any]) -> RecordedExchange | None:
        """Return the recorded call with the same request. None: the model has to be asked.

        Raises `ReplayDifference` if there is none and the model may not be asked.
        """
        return self.find_request(kind, _split_request(body, list_field))

    def find_request(self, kind: str, request: RequestParts) -> RecordedExchange | None:
        """Return what `find` returns for a request that is split already."""
        self._asked += 1
        digests = self._digester.digest(request)
        key = digests.build_key(kind)
        left = self._left.get(key)
        if left:
            self._replay.replayed += 1
            recorded = left[0]
            if recorded.failed:
                # Its attempts are one recorded call: each attempt of the agent now gets the error.
                self._errors.add(key)
            else:
                left.popleft()
            return self._load_rollout(recorded).exchanges[recorded.position]
        if self._replay.asks_model:
            self._replay.live += 1
            self._live += 1
            return None
        problem = self._describe_difference(kind, request, digests)
        difference = ReplayDifference(problem, hint=_HINT)
        self.difference = self.difference or difference
        raise difference

    @property
    def duration_s(self) -> float | None:
        """The recorded duration of the rollout; None if it was not replayed to its end."""
        left = any(queue for digest, queue in self._left.items() if digest not in self._errors)
        return None if left or self._live or self.difference is not None else self._duration_s

    def _load_rollout(self, recorded: _Recorded) -> RecordedRollout:
        if self._kept is not None:
            return self._kept
        key = (recorded.sample, recorded.repeat)
        found = self._loaded.pop(key, None) or self._replay.recording.load(*key)
        assert found is not None
        self._loaded[key] = found
        if len(self._loaded) > _MAX_LOADED:
            self._loaded.popitem(last=False)
        return found

    def _describe_difference(
        self, kind: str, request: RequestParts, digests: RequestDigests
    ) -> str:
        name = self._replay.describe_missing()
        if not self._recorded:
            return f"{name} has no calls of this sample"
        nearest = max(
            self._list_candidates(kind),
            key=lambda each: _measure_likeness(each[1], digests),
            default=None,
        )
        if nearest is None:
            return (
                f"call {self._asked} is not in {name}, which has {self._recorded} calls of this "
                "sample and of this API"
            )
        recorded, _ = nearest
        body = self._load_rollout(recorded).bodies[recorded.position]
        one, other = (from_json(normalize_request(each)) for each in (body, request.to_body()))
        found = find_difference(one, other, request.list_field)
        head = (
            f"call {self._asked} differs from call {recorded.position + 1} of {name} in "
            f"{found.part}"
        )
        return "\n".join([head, *found.diff])

    def _list_candidates(self, kind: str) -> Iterator[tuple[_Recorded, RequestDigests]]:
        left = sorted(
            (recorded for each in self._left.values() for recorded in each),
            key=lambda each: (each.sample, each.repeat, each.position),
        )
        for recorded in left:
            rollout = self._load_rollout(recorded)
            exchange = rollout.exchanges[recorded.position]
            if _name_kind(exchange) == kind:
                body = rollout.bodies[recorded.position]
                yield recorded, self._digester.digest(_split_request(body, exchange.list_field))


def _split_request(body: Mapping[str, Any], list_field: str) -> RequestParts:
    return PartPool(lambda data: data).split(body, list_field)


def _name_kind(exchange: RecordedExchange) -> str:
    return name_kind(exchange.dialect, counts=exchange.purpose == "count_tokens")


def name_kind(dialect: str, *, counts: bool = False) -> str:
    """Return the kind of a call: requests of two kinds are never the same."""
    return f"{dialect}/count_tokens" if counts else dialect


def _measure_likeness(recorded: RequestDigests, present: RequestDigests) -> tuple[int, int]:
    shared = count_common_prefix(recorded.items, present.items)
    equal = sum(recorded.fields.get(name) == value for name, value in present.fields.items())
    return shared, equal + (recorded.items == present.items)


class ReplayClient(ClientWrapper):
    """The model of one rollout, as assay itself calls it."""

    def __init__(
        self, session: ReplaySession, client: ModelClient, about: Mapping[str, Any]
    ) -> None:
        super().__init__(client)
        self.session = session
        self._about = about

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the recorded answer. Raises `ReplayDifference` if there is none."""
        asked = build_own_request(self._about, messages, tools)
        found = self.session.find(OWN_DIALECT, "messages", asked)
        if found is None:
            return await super().complete(messages, tools=tools, seed=seed)
        if found.answer is None:
            raise EndpointError(found.error or "the recorded call has no answer")
        try:
            return Reply(Message.model_validate(found.answer), found.build_call())
        except ValidationError as error:
            raise ConfigError(
                f"a recorded answer is invalid: {error.errors()[0]['msg']}", where="replay"
            ) from None

    def mark(self, trajectory: Trajectory) -> Trajectory:
        """Return a replayed rollout: new costs are 0, and its duration is the recorded one.

        The recorded cost of a call is kept as `recorded_cost_usd` of its usage.
        """
        seconds = self.session.duration_s
        changes: dict[str, Any] = {
            "duration": seconds,
            "calls": list(map(mark_call, trajectory.calls)),
        }
        result = trajectory.evaluation_result
        if result is not None and result.trajectory_info is not None:
            info = {**result.trajectory_info, "duration": seconds}
            changes["evaluation_result"] = result.model_copy(update={"trajectory_info": info})
        if trajectory.cost_usd is not None and all(map(is_replayed, trajectory.calls)):
            changes |= {"cost_usd": 0.0, "recorded_cost_usd": trajectory.cost_usd}
        return trajectory.model_copy(update=changes)

    async def close(self) -> None:
        """Do nothing: other rollouts share the client."""


class OfflineClient:
    """The client of a model that is never asked: it needs no key and opens no connection."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Accept all tools: the model was offered them when it was recorded."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Raise `ReplayDifference`."""
        raise ReplayDifference("the run is replayed, and has no model")

    async def close(self) -> None:
        """Do nothing."""


def is_replayed(call: ModelCall) -> bool:
    """Whether the answer of a call is from a recording."""
    return (call.__pydantic_extra__ or {}).get("replayed") is True


def mark_call(call: ModelCall) -> ModelCall:
    """Return the record of a call; one that was replayed has cost nothing now."""
    if not is_replayed(call):
        return call
    usage = call.usage or Usage()
    if "recorded_cost_usd" in (usage.__pydantic_extra__ or {}):
        return call
    free = usage.model_copy(update={"cost_usd": 0.0, "recorded_cost_usd": usage.cost_usd})
    return call.model_copy(update={"usage": free})
