"""Read Claude Code transcripts: `~/.claude/projects/<folder>/<session>.jsonl`, a record per line.

Records form a tree. Turns that the user reverted are branches that do not lead to the last record.
An answer of the model is stored as one record per block, each with the whole usage.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import BadRow
from assay.types import Sample

from .claude_code_conversation import ClaudeConversation
from .claude_code_forks import ForkOrigin, find_fork_origins
from .claude_code_tree import Branches, drop_invalid_ids, message_of
from .foreign_values import parse_iso_ms, text_or_none
from .session_choice import SampleOptions, SessionChoice, SessionMeta, UnreadableSession
from .session_lines import SessionLines, find_session_files, read_session_lines
from .session_reading import Children
from .session_stream import RecordedSession, SessionStream, StreamOptions
from .stored_json import read_stored_object

# In order of preference: the user's own title comes first.
_TITLE_KINDS = ("custom-title", "ai-title", "summary")
_AGENT_FIELDS = {"type": "agentType", "description": "description", "tool_call_id": "toolUseId"}

NEWEST_TESTED_CLAUDE_CODE = "2.1.325"
"""The newest version of Claude Code whose sessions the tests read."""


def read_claude_code(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    options: SampleOptions | None = None,
    redact: Callable[[Sample], Sample] | None = None,
) -> SessionStream:
    """Stream the sessions that Claude Code recorded as samples.

    `path` is a transcript, the folder of a project, or the folder of all projects. `redact` is
    applied to each sample before it is returned.
    """
    find = partial(_find_transcripts, options=options or SampleOptions())
    wanted = StreamOptions(choice or SessionChoice(), children, redact)
    return SessionStream(Path(path), find, wanted, newest_tested=NEWEST_TESTED_CLAUDE_CODE)


def _find_transcripts(
    path: Path, *, options: SampleOptions
) -> Iterator[RecordedSession | UnreadableSession]:
    folder = path / "projects" if (path / "projects").is_dir() else path
    files = find_session_files(folder, "*.jsonl", kind="transcripts of Claude Code")
    sessions = [file for file in files if not _is_subagent_file(file)]
    known = {file.stem for file in sessions}
    subagents = [file for file in files if _is_subagent_file(file)]
    if folder.is_file():
        # Subagents are in one of two places. A fork repeats another file of its folder and does
        # not name it: scan the siblings too.
        beside = path.parent / path.stem / "subagents"
        subagents = sorted([*path.parent.glob("agent-*.jsonl"), *beside.rglob("agent-*.jsonl")])
        found = (each for file in sessions for each in file.parent.glob("*.jsonl"))
        sessions = sorted(f for f in found if f.is_file() and not _is_subagent_file(f))
    parents = {file: _find_parent_session(file) for file in subagents}
    agents: dict[str, list[Path]] = {}
    for file, parent in parents.items():
        agents.setdefault(parent, []).append(file)
    origins = find_fork_origins(sessions)
    for file in files:
        if _is_subagent_file(file) and parents.get(file) in known:
            continue
        try:
            yield _Transcript(
                read_session_lines(file), agents, options, origin=origins.get(file)
            ).to_recorded_session()
        except BadRow as problem:
            yield UnreadableSession(file.stem, problem.with_traceback(None))
            # Without a sample of their parent, the subagents become samples of their own.
            for agent in agents.get(file.stem, ()) if not _is_subagent_file(file) else ():
                yield _read_child(agent, file.stem, options)


def _is_subagent_file(file: Path) -> bool:
    return file.name.startswith("agent-")


def _find_parent_session(file: Path) -> str:
    """Return the session of a subagent's transcript, or "" if it is not recorded."""
    if file.parent.name == "subagents":
        return file.parent.parent.name
    try:
        records = read_session_lines(file).records
    except BadRow:
        return ""
    return next((str(r["sessionId"]) for r in records if isinstance(r.get("sessionId"), str)), "")


@dataclass
class _Transcript:
    """One file, or the records of one subagent in it."""

    lines: SessionLines
    agents: Mapping[str, list[Path]]
    options: SampleOptions
    parent: str | None = None
    origin: ForkOrigin | None = None
    """The session that this one was forked from."""

    def __post_init__(self) -> None:
        self.lines.records = [drop_invalid_ids(record) for record in self.lines.records]

    def to_recorded_session(self) -> RecordedSession:
        """Return the metadata of the session, and how to build its sample."""
        records = self.lines.records
        self._check_is_transcript()
        stem = self.lines.path.stem
        session_id = stem if self.parent is None else f"{self.parent}/{stem}"
        own, apart = self._split_sidechains(session_id)
        times = [at for at in (parse_iso_ms(each.get("timestamp")) for each in records) if at]
        parent = self.parent
        if parent is None and _is_subagent_file(self.lines.path):
            parent = next((str(r["sessionId"]) for r in records if r.get("sessionId")), None)
        agent = self._read_agent_info()
        folder = next((r["cwd"] for r in records if isinstance(r.get("cwd"), str)), None)
        meta = SessionMeta(
            id=session_id,
            title=_find_title(records) or (agent or {}).get("description") or "",
            parent_id=parent,
            created=min(times, default=None),
            updated=max(times, default=None),
            project=folder,
            directory=folder,
        )
        prompts = {}
        for key, chain in apart:
            # The prompt of a subagent equals `prompt` of the call that started it.
            content = message_of(chain[0]).get("content")
            if isinstance(content, list):
                blocks = filter(lambda each: isinstance(each, dict), content)
                content = "".join(str(each.get("text", "")) for each in blocks)
            prompts[key] = content if isinstance(content, str) else ""
        build = partial(
            build_claude_sample,
            own,
            meta,
            self.options,
            apart=prompts,
            agent=agent,
            origin=self.origin,
        )
        children = partial(self._read_children, session_id, apart)
        return RecordedSession(meta, build, children, tuple(self.lines.bad))

    def _read_agent_info(self) -> dict[str, str] | None:
        """Read the `.meta.json` of a subagent: its type, and the tool call that started it."""
        file = self.lines.path.with_suffix(".meta.json")
        if not _is_subagent_file(file) or not file.is_file():
            return None
        try:
            noted = read_stored_object(file)
        except BadRow as problem:
            self.lines.bad.append(problem.with_traceback(None))
            return None
        named = {name: text_or_none(noted.get(key)) for name, key in _AGENT_FIELDS.items()}
        return {name: text for name, text in named.items() if text is not None} or None

    def _check_is_transcript(self) -> None:
        if not self.lines.records and not self.lines.bad:
            return  # an empty session: nothing was written yet
        marks = ("sessionId", "leafUuid", "messageId")
        if any(mark in record for record in self.lines.records for mark in marks):
            return
        if self.lines.bad:
            raise self.lines.bad[0]
        raise BadRow(
            "the file is not a Claude Code transcript",
            where=str(self.lines.path),
            hint="each record of a transcript has a `type` and a `sessionId`",
        )

    def _split_sidechains(
        self, session_id: str
    ) -> tuple[list[dict[str, Any]], list[tuple[str, list[dict[str, Any]]]]]:
        """Split the session's own records from those of each subagent in the same file."""
        records = self.lines.records
        # Copies of requests contain a message too, but not whose it is.
        turns = (each for each in records if each.get("type") in ("user", "assistant"))
        if _is_subagent_file(self.lines.path) or all(each.get("isSidechain") for each in turns):
            return records, []
        chains: dict[str, list[dict[str, Any]]] = {}
        root: dict[Any, str] = {}
        for record in records:
            if record.get("isSidechain"):
                named = record.get("agentId") or root.get(record.get("parentUuid"))
                name = str(named or record.get("uuid"))
                root[record.get("uuid")] = name
                chains.setdefault(name, []).append(record)
        own = [record for record in records if not record.get("isSidechain")]
        return own, [(f"{session_id}/agent-{name}", each) for name, each in chains.items()]

    def _read_children(
        self, session_id: str, apart: list[tuple[str, list[dict[str, Any]]]]
    ) -> Iterator[RecordedSession | UnreadableSession]:
        for child, records in apart:
            file = self.lines.path.with_name(f"{child.rpartition('/')[2]}.jsonl")
            yield _read_child(SessionLines(file, records), session_id, self.options)
        for file in self.agents.get(session_id, ()) if self.parent is None else ():
            yield _read_child(file, session_id, self.options)


def _read_child(
    source: Path | SessionLines, parent: str, options: SampleOptions
) -> RecordedSession | UnreadableSession:
    path = source if isinstance(source, Path) else source.path
    try:
        lines = read_session_lines(source) if isinstance(source, Path) else source
        return _Transcript(lines, {}, options, parent).to_recorded_session()
    except BadRow as problem:
        return UnreadableSession(f"{parent}/{path.stem}", problem.with_traceback(None))


def _find_title(records: list[dict[str, Any]]) -> str | None:
    """Return the title of the user, else of the program. Skip summaries of other sessions."""
    known = {record.get("uuid") for record in records}
    for kind in _TITLE_KINDS:
        for record in reversed(records):
            if record.get("type") != kind:
                continue
            text = record.get("customTitle") or record.get("aiTitle") or record.get("summary")
            if text_or_none(text) and (kind != "summary" or record.get("leafUuid") in known):
                return str(text)
    return None


def build_claude_sample(
    records: list[dict[str, Any]],
    meta: SessionMeta,
    options: SampleOptions,
    *,
    apart: dict[str, str],
    agent: dict[str, str] | None,
    origin: ForkOrigin | None,
) -> Sample:
    """Build the sample of a session. `apart` has the prompts of subagents in the same file.

    `agent` describes a subagent; `origin` is the session that a fork repeats.
    """
    branches = Branches(records)
    conversation = ClaudeConversation(meta=meta, options=options, apart=apart)
    # A fork repeats the first records of its origin.
    names = dict.fromkeys(name for each in records if (name := each.get("uuid")) is not None)
    repeated = set(list(names)[: origin.records]) if origin is not None else set()
    inherited = 0
    for record in branches.all if options.keep_reverted else branches.kept:
        conversation.take(record)
        if record.get("uuid") in repeated:
            inherited = conversation.count
    conversation.finish()
    if not options.keep_reverted:
        conversation.reverted = [record.get("uuid") for record in branches.abandoned]
        conversation.records += branches.abandoned if options.raw_records else []
    stamps = [text for text in (r.get("timestamp") for r in records) if isinstance(text, str)]
    given = {
        "title": meta.title or None,
        "created": min(stamps, default=None),
        "updated": max(stamps, default=None),
        "directory": meta.directory,
        "version": _find_last_text(records, "version"),
        "branch": _find_last_text(records, "gitBranch"),
    }
    metadata: dict[str, Any] = {"source": "claude-code", "parent_id": meta.parent_id}
    metadata["agent"] = agent
    if origin is not None:
        metadata["forked_from"] = {
            "session_id": origin.session_id,
            "inherited_messages": inherited,
        }
    return conversation.to_sample(meta.id, given, metadata)


def _find_last_text(records: list[dict[str, Any]], key: str) -> str | None:
    return next((t for r in reversed(records) if (t := text_or_none(r.get(key)))), None)
