"""Why an agent makes a call: a turn of its work, or something beside it."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from assay.types import CallPurpose

from .declared_lineage import DeclaredLineage

# Texts of instructions are long, and their purpose is named at the start.
_MAX_CHARS = 3000
_TITLE = re.compile(
    r"\btitle generator\b|\bgenerate (?:a |an )?(?:\w+ ){0,3}title\b|\bconversation title\b"
    r"|\bisnewtopic\b|\bwrite a 5-10 word title\b"
)
_TITLE_WORDS = ("title", "isnewtopic")
_SUMMARY = re.compile(
    r"create a detailed summary of (?:the|our) conversation"
    r"|detailed (?:prompt|summary) for continuing our conversation"
    r"|context (?:checkpoint|summarization)|summarization assistant"
    r"|summari[sz]ing (?:the |our )?conversations?"
    r"|you are performing a context checkpoint compaction"
)
_SUMMARY_WORDS = ("summar", "checkpoint", "continuing our conversation")
_COMPACTION_KINDS = frozenset({"compaction", "compact", "summary"})


def classify_call(body: Mapping[str, Any], declared: DeclaredLineage | None) -> CallPurpose:
    """Return the purpose of a request, by the agent's own declaration or by its instructions."""
    if declared is not None and declared.kind in _COMPACTION_KINDS:
        return "summary"
    if (body.get("max_tokens") or body.get("max_completion_tokens")) == 1:
        return "probe"
    asks_title, asks_summary = _read_instructions("\n".join(_list_instructions(body)))
    if asks_title and not body.get("tools"):
        return "title"
    newest = _find_newest_text(body).lower()
    if asks_summary or _matches_purpose(_SUMMARY, _SUMMARY_WORDS, newest):
        return "summary"
    return "turn"


# An agent sends the same instructions with every call.
@lru_cache(maxsize=64)
def _read_instructions(text: str) -> tuple[bool, bool]:
    """Whether instructions ask for a title, and for a summary."""
    lowered = text.lower()
    return (
        _matches_purpose(_TITLE, _TITLE_WORDS, lowered),
        _matches_purpose(_SUMMARY, _SUMMARY_WORDS, lowered),
    )


def _matches_purpose(pattern: re.Pattern[str], words: tuple[str, ...], lowered: str) -> bool:
    # Most instructions contain none of the words, which is quicker to find out.
    return any(word in lowered for word in words) and pattern.search(lowered) is not None


def _list_instructions(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _list_texts(body.get("system"))
    yield from _list_texts(body.get("instructions"))
    for item in _list_items(body)[:2]:
        if isinstance(item, Mapping) and item.get("role") in ("system", "developer"):
            yield from _list_texts(item.get("content"))


def _find_newest_text(body: Mapping[str, Any]) -> str:
    items = _list_items(body)
    last = items[-1] if items else None
    if not isinstance(last, Mapping) or last.get("role") != "user":
        return ""
    return "\n".join(list(_list_texts(last.get("content")))[-1:])


def _list_items(body: Mapping[str, Any]) -> list[Any]:
    given = body.get("messages", body.get("input"))
    return given if isinstance(given, list) else []


def _list_texts(content: object) -> Iterator[str]:
    if isinstance(content, str):
        yield content[:_MAX_CHARS]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, Mapping) and isinstance(part.get("text"), str):
            yield part["text"][:_MAX_CHARS]
