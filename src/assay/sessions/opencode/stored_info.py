"""Read the info, the reverted messages and the usage of stored sessions, of any version."""

from collections import Counter
from typing import Any

from assay.types import Usage

from ..foreign_values import (
    dict_or_empty,
    format_iso_time,
    parse_cost,
    parse_epoch_ms,
    parse_token_count,
)
from .archive import StoredMessage, StoredSession

_MESSAGE_KEYS = frozenset("id sessionID role modelID providerID system error agent finish".split())
_OPENCODE_ROLES = frozenset(("user", "assistant"))
_OPENCODE_PARTS = frozenset(
    "text reasoning tool file step-start step-finish snapshot patch agent subtask retry "
    "compaction source-url".split()
)
_MAX_KIND_NAME_LENGTH = 80


def read_system_prompt(info: dict[str, Any]) -> str:
    """Return the system prompt of an answer, or ""."""
    system = info.get("system")
    texts = system if isinstance(system, list) else [system]
    return "\n\n".join(text for text in texts if isinstance(text, str) and text)


def collect_extra_info(info: dict[str, Any]) -> dict[str, Any]:
    """Return the entries that `Message` has no field for."""
    return {key: value for key, value in info.items() if key not in _MESSAGE_KEYS}


def drop_headers(error: Any) -> Any:
    """Return an error without response headers, which may contain cookies."""
    if not isinstance(error, dict) or not isinstance(error.get("data"), dict):
        return error
    data = {key: value for key, value in error["data"].items() if key != "responseHeaders"}
    return {**error, "data": data}


def format_stored_error(error: Any) -> str | None:
    """Format a stored error as one line."""
    if not isinstance(error, dict):
        return None if error is None else str(error)
    message = dict_or_empty(error.get("data")).get("message")
    name = str(error.get("name", "error"))
    return f"{name}: {message}" if message else name


def drop_share_secret(info: dict[str, Any]) -> dict[str, Any]:
    """Return the session's info without the share secret, which some versions store."""
    share = info.get("share")
    if not isinstance(share, dict) or "secret" not in share:
        return info
    return {**info, "share": {key: value for key, value in share.items() if key != "secret"}}


def build_session_input(info: dict[str, Any]) -> dict[str, Any]:
    """Build `input` of the sample: title, times, version and folders of the session."""
    time = dict_or_empty(info.get("time"))
    created, updated = parse_epoch_ms(time.get("created")), parse_epoch_ms(time.get("updated"))
    found = {
        "title": info.get("title"),
        "created": None if created is None else format_iso_time(created),
        "updated": None if updated is None else format_iso_time(updated),
        "version": info.get("version"),
        "project": info.get("projectID"),
        "directory": info.get("directory"),
    }
    return {key: value for key, value in found.items() if value is not None}


def read_created_at(info: dict[str, Any]) -> str | None:
    """Return the creation time of a message."""
    created = parse_epoch_ms(dict_or_empty(info.get("time")).get("created"))
    return None if created is None else format_iso_time(created)


def split_reverted(session: StoredSession) -> tuple[list[StoredMessage], list[Any]]:
    """Return the messages that were kept, and the ids of those reverted as a whole or in part.

    Reverted messages stay stored until the next prompt.
    """
    # By position, as OpenCode does: ids do not define the order.
    revert = dict_or_empty(session.info.get("revert"))
    wanted, part_id = revert.get("messageID"), revert.get("partID")
    places = [n for n, each in enumerate(session.messages) if each.info.get("id") == wanted]
    if wanted is None or not places:
        return session.messages, []
    place = places[0]
    kept = session.messages[:place]
    cut = session.messages[place]
    until = [n for n, part in enumerate(cut.parts) if part.get("id") == part_id]
    if part_id is not None and until and until[0] > 0:
        kept = [*kept, StoredMessage(cut.info, cut.parts[: until[0]])]
    return kept, [each.info.get("id") for each in session.messages[place:]]


def count_unknown_kinds(session: StoredSession) -> Counter[str]:
    """Count the messages and parts of a session by unknown kind."""
    found: Counter[str] = Counter()
    parts = list(session.stray_parts)
    for message in session.messages:
        if _format_kind_name(message.info.get("role")) not in _OPENCODE_ROLES:
            found[f"message of role {_format_kind_name(message.info.get('role'))}"] += 1
        parts += message.parts
    for part in parts:
        if (kind := _format_kind_name(part.get("type"))) not in _OPENCODE_PARTS:
            found[f"part {kind}"] += 1
    return found


def _format_kind_name(value: object) -> str:
    named = isinstance(value, str)
    return str(value)[:_MAX_KIND_NAME_LENGTH] if named else f"of type {type(value).__name__}"


def read_usage(tokens: Any, cost: Any, *, version: str) -> Usage | None:
    """Return the usage of one call, or None if nothing was counted.

    `input_tokens` is the whole prompt and `output_tokens` the whole answer, reasoning included,
    as providers bill them. The counts as they were stored are kept beside them.
    """
    if not isinstance(tokens, dict):
        return None
    cache = dict_or_empty(tokens.get("cache"))
    names = ("input", "output", "reasoning", "total")
    given, answer, thought, total = (parse_token_count(tokens.get(name)) for name in names)
    read, written = parse_token_count(cache.get("read")), parse_token_count(cache.get("write"))
    if not any((given, answer, read, written, thought, total)):
        # Failed calls are stored with zeros, which are not a measurement.
        return None
    prompt = given
    if given is not None and not version.startswith("0."):
        # Since 1.0 cached tokens are counted separately.
        prompt = given + (read or 0) + (written or 0)
    if total is not None and prompt is not None and total >= prompt:
        # Versions differ in whether `output` includes reasoning; derive it from the total.
        answer = total - prompt
    return Usage(
        input_tokens=prompt,
        output_tokens=answer,
        cached_tokens=read,
        reasoning_tokens=thought,
        cost_usd=parse_cost(cost),
        stored=tokens,
    )
