"""Stream recorded sessions of any agent as samples, and report skipped ones."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from assay.errors import BadRow, ConfigError
from assay.types import Sample

from .session_choice import SessionChoice, SessionMeta, UnreadableSession
from .session_reading import CONVERSION_ERRORS, Children, SessionReading

# Recorded sessions may refer to each other in a circle.
_MAX_INLINE_DEPTH = 8
# The number of damaged lines listed in the notes of a pass; `damaged` has all of them.
_MAX_NOTED_LINES = 20


@dataclass(frozen=True)
class RecordedSession:
    """One session: its metadata, and how to read it."""

    meta: SessionMeta
    sample: Callable[[], Sample]
    children: Callable[[], Iterable["RecordedSession | UnreadableSession"]] = tuple
    """The sessions of the subagents that it started."""

    damage: Sequence[BadRow] = ()
    """Parts that cannot be read, complete once the sample is built. The sample has the rest."""

    notes: Sequence[str] = ()
    """Notes about its files."""

    version: str | None = None
    """Version of the format, if it differs from the agent's version in `sample.input`."""


SessionFinder = Callable[[Path], Iterable[RecordedSession | UnreadableSession | str]]
"""Yields the sessions at a path that no other one started, and notes on its files."""


@dataclass(frozen=True)
class StreamOptions:
    """Options of a stream that all agents share."""

    choice: SessionChoice = field(default_factory=SessionChoice)
    children: Children = "inline"
    redact: Callable[[Sample], Sample] | None = None

    def __post_init__(self) -> None:
        if self.children not in get_args(Children):
            raise ConfigError(
                f"children must be one of {', '.join(get_args(Children))}, not {self.children!r}",
                where="recorded sessions",
            )


class SessionStream:
    """Samples of recorded sessions, one in memory at a time.

    Each `for` loop is a new pass. `reading` has the statistics of the latest pass. Sessions of
    versions after `newest_tested` are read as well, and counted there.
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
        self.reading = SessionReading()

    def __iter__(self) -> Iterator[Sample]:
        self.reading = SessionReading()
        return self._iterate_samples(self.reading)

    def _iterate_samples(self, reading: SessionReading) -> Iterator[Sample]:
        missing = set(self._wanted.choice.sessions)
        for found in self._find(self.path):
            if isinstance(found, str):
                reading.notes.append(found)
            elif isinstance(found, UnreadableSession):
                self._note_unreadable(found, reading, missing)
            else:
                yield from self._read_with_children(found, reading, missing)
        reading.missing = sorted(missing)
        if len(reading.damaged) > _MAX_NOTED_LINES:
            reading.notes.append(
                f"{len(reading.damaged) - _MAX_NOTED_LINES} more damaged lines skipped"
            )
        reading.note_versions(self._newest_tested)

    def _note_unreadable(
        self, found: UnreadableSession, reading: SessionReading, missing: set[str]
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
        reading: SessionReading,
        missing: set[str],
        *,
        depth: int = 0,
        asked: bool = False,
    ) -> Iterator[Sample]:
        """Yield the sample of a session, and of its subagents that are not inside it.

        Each session is counted once in `reading`. With `asked`, the selection is ignored.
        """
        missing.discard(found.meta.id)
        chosen = asked or self._wanted.choice.fits(found.meta)
        reading.not_chosen += not chosen
        sample = self._read(found, reading) if chosen else None
        # Also of a session that is not chosen: a subagent may be selected by its own id.
        apart: Iterable[RecordedSession | UnreadableSession] = found.children()
        if sample is not None:
            if self._wanted.children != "separate":
                named: list[RecordedSession] = []
                if inner := self._inline_subagents(apart, reading, missing, named, depth=depth):
                    sample.metadata["subagents"] = inner
                apart = named
            reading.read += 1
            yield sample if self._wanted.redact is None else self._wanted.redact(sample)
        # A session without a sample cannot contain its subagents: they become separate samples.
        lost = chosen and sample is None and self._wanted.children == "inline"
        for child in apart:
            yield from self._read_child(child, reading, missing, depth=depth + 1, asked=lost)

    def _read_child(
        self,
        child: RecordedSession | UnreadableSession,
        reading: SessionReading,
        missing: set[str],
        *,
        depth: int,
        asked: bool,
    ) -> Iterator[Sample]:
        """Yield the samples of a subagent that is not inside its parent's sample."""
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
        """Whether a subagent's session is a separate sample, as always when selected by id."""
        return self._wanted.children == "separate" or child.meta.id in self._wanted.choice.sessions

    def _read(self, found: RecordedSession, reading: SessionReading) -> Sample | None:
        """Return the sample of a session; None, and counted, if it is empty or unreadable."""
        try:
            sample = found.sample()
        except CONVERSION_ERRORS as error:
            why = f"the session contains invalid values: {error}"
            problem = BadRow(why, where=f"session {found.meta.id}")
            # A traceback would keep the session in memory.
            lost = error.with_traceback(None) if isinstance(error, BadRow) else problem
            reading.skipped.append(UnreadableSession(found.meta.id, lost))
            return None
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
        # Only texts of the program, such as a system prompt or a command it answered itself.
        if all(message.role in ("system", "developer") for message in sample.messages):
            reading.empty += 1
            return None
        return sample

    def _inline_subagents(
        self,
        children: Iterable[RecordedSession | UnreadableSession],
        reading: SessionReading,
        missing: set[str],
        named: list[RecordedSession],
        *,
        depth: int,
    ) -> list[dict[str, Any]]:
        """Return the sessions of subagents as dicts; those selected by id go to `named`.

        An unreadable one is reported like any other; its parent is read without it.
        """
        samples: list[dict[str, Any]] = []
        inline = self._wanted.children == "inline"
        for child in children:
            if isinstance(child, UnreadableSession) or (inline and depth >= _MAX_INLINE_DEPTH):
                lost = _to_unreadable(child)
                missing.discard(lost.session_id)
                if inline:
                    reading.skipped.append(lost)
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
                # Subagents of an empty session move up to its parent.
                samples += inner
                continue
            if inner:
                sample.metadata["subagents"] = inner
            samples.append(sample.to_dict())
            reading.inlined += 1
        return samples


def _to_unreadable(child: RecordedSession | UnreadableSession) -> UnreadableSession:
    """Return an unreadable session, or the error of one that is nested too deep."""
    if isinstance(child, UnreadableSession):
        return child
    problem = BadRow(
        f"the session is nested more than {_MAX_INLINE_DEPTH} levels deep",
        where=f"session {child.meta.id}",
    )
    return UnreadableSession(child.meta.id, problem)
