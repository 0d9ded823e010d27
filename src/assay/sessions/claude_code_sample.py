"""Build the sample of a Claude Code session from its records."""

from typing import Any

from assay.types import Sample

from .claude_code_conversation import ClaudeConversation
from .claude_code_forks import ForkOrigin
from .claude_code_tree import Branches
from .foreign_values import text_or_none
from .session_choice import SampleOptions, SessionMeta


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
