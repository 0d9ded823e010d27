"""Read Codex rollouts: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, an item per line.

A session may have several files, and may continue another one; see `codex_rollouts`. The items
sent to and received from the model are authoritative. Events repeat them for the screen, and are
used only for tokens, interruptions and reverted turns, which the items lack.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import BadRow
from assay.types import Sample

from .codex_conversation import CodexConversation
from .codex_replay import CodexReplay, RolloutLine
from .codex_rollouts import (
    ROLLOUT_PATTERNS,
    Rollout,
    RolloutIndex,
    find_codex_home,
    find_rollouts,
    find_session_name,
    read_parent_id,
    wrap_in_envelope,
)
from .foreign_values import parse_iso_ms, text_or_none
from .session_choice import SampleOptions, SessionChoice, SessionMeta, UnreadableSession
from .session_lines import find_session_files, iterate_records
from .session_reading import Children
from .session_stream import RecordedSession, SessionStream, StreamOptions

__all__ = ["read_codex"]

NEWEST_TESTED_CODEX = "0.166.0"
"""The newest version of Codex whose sessions the tests read."""

_TITLES_FILE = "session_index.jsonl"


def read_codex(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    options: SampleOptions | None = None,
    redact: Callable[[Sample], Sample] | None = None,
) -> SessionStream:
    """Stream the sessions that Codex recorded as samples.

    `path` is a rollout or a folder with rollouts at any depth. `redact` is applied to each
    sample before it is returned.
    """
    find = partial(_find_threads, options=options or SampleOptions())
    wanted = StreamOptions(choice or SessionChoice(), children, redact)
    return SessionStream(Path(path), find, wanted, newest_tested=NEWEST_TESTED_CODEX)


def _find_threads(
    path: Path, *, options: SampleOptions
) -> Iterator[RecordedSession | UnreadableSession]:
    files = find_session_files(path, *ROLLOUT_PATTERNS, kind="rollouts of Codex")
    home = find_codex_home(path)
    if not path.is_dir():
        # Subagents are usually in the folder of their parent; inherited history may be anywhere.
        files += [file for pattern in ROLLOUT_PATTERNS for file in path.parent.glob(pattern)]
    index = RolloutIndex(files, find_rollouts(home) if home != path.resolve() else ())
    threads = index.roots if path.is_dir() else [index.find_thread(path)]
    del files
    folder = _Folder(index, read_titles(home, path), options)
    for thread_id in threads:
        yield folder.read(thread_id)


@dataclass(frozen=True)
class _Folder:
    """The sessions that are read together."""

    index: RolloutIndex
    titles: dict[str, str]
    options: SampleOptions

    def read(self, thread_id: str) -> RecordedSession | UnreadableSession:
        rollouts = self.index.threads[thread_id]
        try:
            return _Thread(self, rollouts).to_recorded_session()
        except BadRow as problem:
            return UnreadableSession(
                find_session_name(rollouts[-1].path), problem.with_traceback(None)
            )


@dataclass
class _Thread:
    """One session: its rollouts, with all their lines."""

    folder: _Folder
    rollouts: list[Rollout]
    lines: list[list[RolloutLine]] = field(default_factory=list)
    damage: list[BadRow] = field(default_factory=list)

    def to_recorded_session(self) -> RecordedSession:
        """Return the metadata of the session, and how to build its sample."""
        for rollout in self.rollouts:
            lines = list(iterate_records(Path(rollout.path)))
            self.damage += [line for line, _ in lines if isinstance(line, BadRow)]
            self.lines.append(lines)
        index, thread_id = self.folder.index, self.rollouts[-1].thread_id
        records = [wrap_in_envelope(line) for line, _ in lines if isinstance(line, dict)]
        payload = next((r["payload"] for r in records if r["type"] == "session_meta"), None)
        if payload is None and self.damage:
            raise self.damage[0]
        if payload is None:
            hint = "the first line of a rollout is a `session_meta`"
            raise BadRow("the file is not a Codex rollout", where=rollout.path, hint=hint)
        times = [at for at in map(parse_iso_ms, self._list_timestamps()) if at]
        meta = SessionMeta(
            id=text_or_none(payload.get("id")) or find_session_name(self.rollouts[-1].path),
            title=self.folder.titles.get(thread_id, ""),
            parent_id=read_parent_id(payload),
            created=min(times, default=None),
            updated=max(times, default=None),
            project=text_or_none(payload.get("cwd")),
            directory=text_or_none(payload.get("cwd")),
        )
        copies = index.copies.get(thread_id, ())
        notes = [f"{path}: session {meta.id} has a longer copy; file skipped" for path in copies]
        build = partial(self._build_sample, meta, dict(payload))
        children = partial(map, self.folder.read, index.children_of(thread_id))
        return RecordedSession(meta, build, children, self.damage, notes=notes)

    def _list_timestamps(self) -> list[str]:
        records = (line for lines in self.lines for line, _ in lines if isinstance(line, dict))
        stamps = (record.get("timestamp") for record in records)
        return [stamp for stamp in stamps if isinstance(stamp, str)]

    def _build_sample(self, meta: SessionMeta, payload: dict[str, Any]) -> Sample:
        children = self.folder.index.children_of(self.rollouts[-1].thread_id)
        reader = CodexConversation(options=self.folder.options, info=payload, children=children)
        replay = CodexReplay(self.folder.index, reader, self.rollouts)
        for rollout, lines in zip(self.rollouts, self.lines, strict=True):
            replay.take(rollout, lines)
        conversation = reader.finish()
        self.damage += replay.problems
        stamps = self._list_timestamps()
        given = {
            "title": meta.title or None,
            "created": min(stamps, default=None),
            "updated": max(stamps, default=None),
            "directory": meta.directory,
            "version": payload.get("cli_version"),
            "provider": payload.get("model_provider"),
        }
        metadata = {
            "source": "codex",
            "parent_id": meta.parent_id,
            "forked_from": self._describe_fork(replay),
            "info": reader.info,
            "repeated_events": reader.repeated,
        }
        return conversation.to_sample(meta.id, given, metadata)

    def _describe_fork(self, replay: CodexReplay) -> dict[str, Any] | None:
        """Describe the session that this one was forked from, and how much was inherited."""
        first = self.rollouts[0]
        origin = self.rollouts[-1].forked_from or first.forked_from
        # A rollout with an id of its own continues its own thread.
        if origin is None and first.base is not None and first.rollout_id == first.thread_id:
            source = self.folder.index.find(first.base.rollout_id)
            origin = first.base.rollout_id if source is None else source.thread_id
        if origin is None or origin == first.thread_id:
            return None
        if all(each.base is None and each.own_from is None for each in self.rollouts):
            # Older versions copy the history into the file without marking it.
            return {"session_id": origin, "inherited_messages": None, "inherited_turns": None}
        inherited = replay.reader.messages[: replay.inherited_messages]
        turns = [
            m for m in inherited if m.role == "user" and not (m.details or {}).get("synthetic")
        ]
        return {
            "session_id": origin,
            "inherited_messages": len(inherited),
            "inherited_turns": len(turns),
            "complete": not replay.problems,
        }


def read_titles(home: Path, path: Path) -> dict[str, str]:
    """Return the last title of each session, from the home and from homes below `path`.

    A missing or damaged index loses titles, never sessions.
    """
    files = {home / _TITLES_FILE, *(path.rglob(_TITLES_FILE) if path.is_dir() else ())}
    titles: dict[str, str] = {}
    for file in sorted(file for file in files if file.is_file()):
        try:
            for entry, _ in iterate_records(file):
                if not isinstance(entry, dict):
                    continue
                session, title = text_or_none(entry.get("id")), entry.get("thread_name")
                if session is not None and isinstance(title, str):
                    titles[session] = title
        except BadRow:
            continue
    return titles
