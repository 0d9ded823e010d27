"""Recorded sessions of any agent as a stream of samples, with an account of the rest."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from assay.errors import BadRow, ConfigError
from assay.types import Message, ModelCall, Sample, Status, Trajectory

from .content_ids import compute_content_id
from .session_choice import SessionChoice
from .session_meta import SessionMeta, UnreadableSession
from .session_reading import CONVERSION_ERRORS, Children, SessionReading

_MAX_INLINE_DEPTH = 8
_MAX_NOTED_LINES = 20
"""Damaged lines that are named in the notes of a pass; all of them are in its `damaged`."""


@dataclass(frozen=True)
class RecordedSession:
    """One session that was found: what it is chosen by, and how to read it."""

    meta: SessionMeta
    sample: Callable[[], Sample]
    children: Callable[[], Iterable["RecordedSession | UnreadableSession"]] = tuple
    """The sessions of the subagents that it started."""

    damage: Sequence[BadRow] = ()
    """What of it cannot be read, known when the sample is built. The sample holds the rest."""

    notes: Sequence[str] = ()
    """What else is worth knowing about its files."""

    version: str | None = None
    """Of the format, where it is not the agent's version in `sample.input`."""


SessionFinder = Callable[[Path], Iterable[RecordedSession | UnreadableSession]]


@dataclass
class TranscriptReading(SessionReading):
    """What one pass over the sessions came to."""

    damaged: list[UnreadableSession] = field(default_factory=list)
    """Lines that cannot be read, of sessions that were read without them."""


@dataclass(frozen=True)
class StreamOptions:
    """What is asked of recorded sessions, the same for every agent."""

    choice: SessionChoice = field(default_factory=SessionChoice)
    children: Children = "inline"
    redact: Callable[[Sample], Sample] | None = None

    def __post_init__(self) -> None:
        if self.children not in get_args(Children):
            raise ConfigError(
                f"children must be one of {', '.join(get_args(Children))}, not {self.children!r}",
                where="recorded sessions",
            )


class TranscriptStream:
    """Samples of recorded sessions, one in memory at a time.

    Each `for` loop is a pass of its own. `reading` tells of the pass begun last. Sessions of
    versions after `newest_tested` are read all the same, and counted there.
    """

    def __init__(
        self,
        path: Path,
        find: SessionFinder,
        wanted: StreamOptions,
        *,
        newest_tested: str | None = None,
    ) -> None:
        self.path = path
        self._newest_tested = newest_tested
        self._find = find
        self._wanted = wanted
        self.reading = TranscriptReading()

    def __iter__(self) -> Iterator[Sample]:
        self.reading = TranscriptReading()
        return self._iterate_samples(self.reading)

    def _iterate_samples(self, reading: TranscriptReading) -> Iterator[Sample]:
        missing = set(self._wanted.choice.sessions)
        for found in self._find(self.path):
            if isinstance(found, UnreadableSession):
                self._note_unreadable(found, reading, missing)
                continue
            yield from self._read_with_children(found, reading, missing)
        reading.missing = sorted(missing)
        if len(reading.damaged) > _MAX_NOTED_LINES:
            reading.notes.append(
                f"{len(reading.damaged) - _MAX_NOTED_LINES} more damaged lines skipped"
            )
        reading.note_versions(self._newest_tested)

    def _note_unreadable(
        self, found: UnreadableSession, reading: TranscriptReading, missing: set[str]
    ) -> None:
        chosen = self._wanted.choice.sessions
        if chosen and found.session_id not in chosen:
            reading.not_chosen += 1
            return
        missing.discard(found.session_id)
        reading.skipped.append(found)

    def _read_with_children(
        self,
        found: RecordedSession,
        reading: TranscriptReading,
        missing: set[str],
        *,
        depth: int = 0,
        asked: bool = False,
    ) -> Iterator[Sample]:
        """The sample of a session, and of the subagents' sessions that are not part of it.

        Each session is counted once in `reading`. `asked` says that it is wanted whatever it is
        chosen by.
        """
        missing.discard(found.meta.id)
        chosen = asked or self._wanted.choice.fits(found.meta)
        reading.not_chosen += not chosen
        sample = self._read(found, reading) if chosen else None
        apart: Iterable[RecordedSession | UnreadableSession] = found.children()
        if sample is not None:
            if self._wanted.children != "separate":
                named: list[RecordedSession] = []
                if inner := self._inline_subagents(apart, reading, missing, named, depth=depth):
                    sample.metadata["subagents"] = inner
                apart = named
            reading.read += 1
            yield sample if self._wanted.redact is None else self._wanted.redact(sample)
        # A session that came to no sample cannot hold those of its subagents: they are read apart.
        lost = chosen and sample is None and self._wanted.children == "inline"
        for child in apart:
            yield from self._read_child(child, reading, missing, depth=depth + 1, asked=lost)

    def _read_child(
        self,
        child: RecordedSession | UnreadableSession,
        reading: TranscriptReading,
        missing: set[str],
        *,
        depth: int,
        asked: bool,
    ) -> Iterator[Sample]:
        """A subagent's session that is not inside its parent's sample."""
        if isinstance(child, UnreadableSession):
            self._note_unreadable(child, reading, missing)
        elif depth > _MAX_INLINE_DEPTH:
            reading.skipped.append(_to_unreadable(child))
        elif asked or self._is_separate(child):
            yield from self._read_with_children(child, reading, missing, depth=depth, asked=asked)
        else:
            reading.not_chosen += 1
            for each in child.children():
                yield from self._read_child(each, reading, missing, depth=depth + 1, asked=False)

    def _is_separate(self, child: RecordedSession) -> bool:
        """Whether a subagent's session is a sample of its own. Asked for by name, it always is."""
        return self._wanted.children == "separate" or child.meta.id in self._wanted.choice.sessions

    def _read(self, found: RecordedSession, reading: TranscriptReading) -> Sample | None:
        """The sample of a session; None, and counted, when it has no turn or cannot be read."""
        try:
            sample = self._build_sample(found, reading)
        except BadRow as problem:
            reading.skipped.append(UnreadableSession(found.meta.id, problem.with_traceback(None)))
            return None
        # Texts of the program alone, such as a system prompt or a command it answered itself.
        if all(message.role in ("system", "developer") for message in sample.messages):
            reading.empty += 1
            return None
        return sample

    def _build_sample(self, found: RecordedSession, reading: TranscriptReading) -> Sample:
        try:
            sample = found.sample()
        except BadRow:
            raise
        except CONVERSION_ERRORS as error:
            raise BadRow(
                f"the session contains invalid values: {error}", where=f"session {found.meta.id}"
            ) from None
        reading.count_unknown(sample)
        reading.notes += found.notes
        version = found.version or sample.input.get("version")
        reading.check_version(version, newest=self._newest_tested)
        for problem in found.damage:
            reading.damaged.append(UnreadableSession(found.meta.id, problem))
            if len(reading.damaged) <= _MAX_NOTED_LINES:
                reading.notes.append(f"{problem.where}: {problem.message}; line skipped")
        if found.damage:
            sample.metadata["unreadable_lines"] = [
                {"where": problem.where, "why": problem.message} for problem in found.damage
            ]
        return sample

    def _inline_subagents(
        self,
        children: Iterable[RecordedSession | UnreadableSession],
        reading: TranscriptReading,
        missing: set[str],
        named: list[RecordedSession],
        *,
        depth: int,
    ) -> list[dict[str, Any]]:
        """The sessions of subagents as plain samples; those asked for by name go to `named`.

        One that cannot be read is reported like any other; its parent is read without it.
        """
        samples: list[dict[str, Any]] = []
        inline = self._wanted.children == "inline"
        for child in children:
            if isinstance(child, UnreadableSession) or (inline and depth >= _MAX_INLINE_DEPTH):
                missing.discard(_get_session_id(child))
                if inline:
                    reading.skipped.append(_to_unreadable(child))
                else:
                    reading.dropped += 1
                continue
            if self._is_separate(child):
                named.append(child)
                continue
            sample = self._read(child, reading) if inline else None
            reading.dropped += not inline
            offspring = child.children() if depth < _MAX_INLINE_DEPTH else ()
            inner = self._inline_subagents(offspring, reading, missing, named, depth=depth + 1)
            if sample is None:
                # What an empty session started belongs to whoever started that one.
                samples += inner
                continue
            if inner:
                sample.metadata["subagents"] = inner
            samples.append(sample.to_dict())
            reading.inlined += 1
        return samples


def _get_session_id(child: RecordedSession | UnreadableSession) -> str:
    return child.session_id if isinstance(child, UnreadableSession) else child.meta.id


def _to_unreadable(child: RecordedSession | UnreadableSession) -> UnreadableSession:
    """A session that is not read: it cannot be, or it is inside too many others."""
    if isinstance(child, UnreadableSession):
        return child
    problem = BadRow(
        f"the session is nested more than {_MAX_INLINE_DEPTH} levels deep",
        where=f"session {child.meta.id}",
    )
    return UnreadableSession(child.meta.id, problem)


@dataclass
class Conversation:
    """What a session came to, while it is read."""

    messages: list[Message] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    """What is not part of the conversation, with why: texts that the program put into it."""

    user_shell: list[dict[str, Any]] = field(default_factory=list)
    reverted: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    """Records of kinds that are not known, or of all that are no messages, as they are."""

    omitted: Counter[str] = field(default_factory=Counter)
    """Known kinds of records that are no messages, with the number of records."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    """The tools that the model was told of, as `ToolSpec` writes them."""

    cost_usd: float | None = None
    """What the whole session cost, where the agent notes no more than that."""

    unknown_kinds: Counter[str] = field(default_factory=Counter)
    """Kinds of records that this version of assay does not know, with the number of records."""

    compactions: int = 0
    interrupted: bool = False
    """Whether the user stopped the last turn."""

    def skip(self, record_id: Any, why: str, part: Any, *, synthetic: bool = True) -> None:
        """Put something beside the conversation."""
        entry = {"id": record_id, "why": why, "parts": [part]}
        self.skipped.append({**entry, "synthetic": True} if synthetic else entry)

    def to_sample(self, session_id: str, given: dict[str, Any], metadata: dict[str, Any]) -> Sample:
        """The sample, with what is unknown left out of `input` and `metadata`."""
        found = {
            "skipped": self.skipped,
            "user_shell": self.user_shell,
            "reverted_messages": self.reverted,
            "compactions": self.compactions,
            "records": self.records,
            "omitted_records": dict(self.omitted) or None,
            "unknown_records": dict(self.unknown_kinds) or None,
            "content_id": compute_content_id(self.messages),
        }
        roles = [message.role for message in self.messages]
        opening = roles.index("assistant") if "assistant" in roles else len(roles)
        status = self._compute_status()
        return Sample(
            id=session_id,
            input={key: value for key, value in given.items() if value is not None},
            prompt=list(self.messages[:opening]),
            trajectory=Trajectory(
                messages=self.messages,
                calls=self.calls,
                steps=len(self.calls),
                terminated=status is Status.COMPLETED,
                truncated=status is Status.TRUNCATED,
                termination_reason=self._find_end_reason(),
                cost_usd=self.cost_usd,
                # Where exporters look for them. None are known if the agent records none.
                **({"tools": self.tools} if self.tools else {}),
            ),
            status=status,
            metadata={k: v for k, v in {**metadata, **found}.items() if v not in (None, [], 0)},
        )

    def _find_end_reason(self) -> str | None:
        if self.interrupted:
            return "interrupted"
        if not self.calls or not self.messages or self.messages[-1].role == "user":
            return None
        return self.calls[-1].error or self.calls[-1].finish_reason

    def _compute_status(self) -> Status:
        if self.interrupted or not self.messages or self.messages[-1].role != "assistant":
            return Status.ABORTED
        last = self.calls[-1] if self.calls else ModelCall()
        if last.error is not None or self.messages[-1].tool_calls:
            return Status.ABORTED
        cut = last.finish_reason in ("length", "max_tokens", "max_output_tokens")
        return Status.TRUNCATED if cut else Status.COMPLETED


def parse_token_count(value: object) -> int | None:
    """A number of tokens, or None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        return None
    return int(value)


def text_or_none(value: object) -> str | None:
    """A string with something in it, or None."""
    return value if isinstance(value, str) and value else None
