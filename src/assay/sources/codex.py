"""Rollouts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`, one item a line.

The items that went to and came from the model are the truth. Events, which repeat them for the
screen, tell only what the items do not: tokens, interruptions, and what the user went back on.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import BadRow
from assay.models import Sample

from .codex_conversation import CodexConversation
from .opencode import Children, SampleOptions, SessionChoice
from .session_heads import Head, Unreadable
from .session_lines import numbered_lines, read_lines, session_files
from .session_times import milliseconds
from .stored_json import parse_object
from .transcripts import Recorded, TranscriptStream, Wanted, text_or_none

__all__ = ["read_codex"]

NEWEST_TESTED = "0.166.0"
"""The newest version of Codex whose sessions the tests read."""


def read_codex(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    options: SampleOptions | None = None,
    redact: Callable[[Sample], Sample] | None = None,
) -> TranscriptStream:
    """Stream the sessions that Codex recorded as samples.

    `path` is a rollout or a folder with rollouts at any depth. `redact` sees each sample before
    anybody else and returns what may be shown.
    """
    find = partial(_find, options=options or SampleOptions())
    wanted = Wanted(choice or SessionChoice(), children, redact)
    return TranscriptStream(Path(path), find, wanted, newest_tested=NEWEST_TESTED)


def _find(path: Path, *, options: SampleOptions) -> Iterator[Recorded | Unreadable]:
    files = session_files(path, "rollout-*.jsonl", kind="rollouts of Codex")
    family = _Family(files if path.is_dir() else _beside(path))
    for file in files:
        if family.has_parent(file) and path.is_dir():
            continue
        yield _read_file(file, family, options)


def _beside(path: Path) -> list[Path]:
    """A subagent begins while its parent runs, so that its rollout is mostly of the same day."""
    return sorted({path, *path.parent.glob("rollout-*.jsonl")})


class _Family:
    """Which session started which, from the first line of each rollout."""

    def __init__(self, files: list[Path]) -> None:
        metas = {file: _first_meta(file) for file in files}
        ids = {str(meta.get("id")) for meta in metas.values()}
        self._with_parent: set[Path] = set()
        self._children: dict[str, list[Path]] = {}
        for file, meta in metas.items():
            parent = parent_of(meta)
            if parent is not None and parent in ids and parent != meta.get("id"):
                self._with_parent.add(file)
                self._children.setdefault(parent, []).append(file)

    def has_parent(self, file: Path) -> bool:
        return file in self._with_parent

    def children_of(self, session_id: str) -> list[Path]:
        return self._children.get(session_id, [])


def _first_meta(file: Path) -> Mapping[str, Any]:
    """What the first line says of a session; empty when it cannot be read, which is told later."""
    try:
        line = next((line for _, line in numbered_lines(file)), b"{}")
        record = parse_object(line, where=str(file)) if isinstance(line, bytes) else {}
    except BadRow:
        return {}
    payload = record.get("payload")
    return payload if isinstance(payload, dict) else record


def parent_of(meta: Mapping[str, Any]) -> str | None:
    """The session that started this one as its subagent."""
    source = meta.get("source")
    spawned = source.get("subagent") if isinstance(source, dict) else None
    spawned = spawned.get("thread_spawn") if isinstance(spawned, dict) else None
    parent = spawned.get("parent_thread_id") if isinstance(spawned, dict) else None
    return text_or_none(parent) or text_or_none(meta.get("parent_thread_id"))


def _recorded(file: Path, family: _Family, options: SampleOptions) -> Recorded:
    lines = read_lines(file)
    records = [_in_envelope(record) for record in lines.records]
    meta = next((r["payload"] for r in records if r["type"] == "session_meta"), None)
    if meta is None or not any(r["type"] != "unknown" for r in records):
        if lines.bad:
            raise lines.bad[0]
        raise BadRow(
            "is no rollout of Codex", where=str(file), hint="its first line is a `session_meta`"
        )
    session_id = text_or_none(meta.get("id")) or file.stem
    times = [at for at in (milliseconds(each.get("timestamp")) for each in records) if at]
    head = Head(
        id=session_id,
        parent_id=parent_of(meta),
        created=min(times, default=None),
        updated=max(times, default=None),
        project=text_or_none(meta.get("cwd")),
        directory=text_or_none(meta.get("cwd")),
    )
    offspring = family.children_of(session_id)
    names = [str(_first_meta(child).get("id")) for child in offspring]
    build = partial(_sample, records, head, dict(meta), options, names)
    children = partial(_children, offspring, family, options)
    return Recorded(head, build, children, tuple(lines.bad))


def _children(
    files: list[Path], family: _Family, options: SampleOptions
) -> Iterator[Recorded | Unreadable]:
    for file in files:
        yield _read_file(file, family, options)


def _read_file(file: Path, family: _Family, options: SampleOptions) -> Recorded | Unreadable:
    try:
        return _recorded(file, family, options)
    except BadRow as problem:
        return Unreadable(file.stem, problem.with_traceback(None))


def _in_envelope(record: dict[str, Any]) -> dict[str, Any]:
    """A line as versions since 0.32 write it: before, items stood there without an envelope."""
    if isinstance(record.get("payload"), dict) and isinstance(record.get("type"), str):
        return record
    stamp = record.get("timestamp")
    if "id" in record and "type" not in record and "timestamp" in record:
        return {"type": "session_meta", "timestamp": stamp, "payload": record}
    if isinstance(record.get("type"), str) and "payload" not in record:
        return {"type": "response_item", "timestamp": stamp, "payload": record}
    return {"type": "unknown", "timestamp": stamp, "payload": record}


def _sample(
    records: list[dict[str, Any]],
    head: Head,
    meta: dict[str, Any],
    options: SampleOptions,
    children: list[str],
) -> Sample:
    reader = CodexConversation(options, meta, children)
    for record in records:
        reader.take(record)
    talk = reader.finished()
    stamps = [text for text in (r.get("timestamp") for r in records) if isinstance(text, str)]
    given = {
        "created": min(stamps, default=None),
        "updated": max(stamps, default=None),
        "directory": head.directory,
        "version": meta.get("cli_version"),
        "provider": meta.get("model_provider"),
    }
    metadata = {
        "source": "codex",
        "parent_id": head.parent_id,
        "info": reader.info,
        "repeated_events": reader.repeated,
    }
    return talk.to_sample(head.id, given, metadata)
