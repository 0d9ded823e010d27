"""Read the info objects of sessions and messages."""

from typing import Any

from .archive import parse_epoch_ms
from .timestamps import format_iso_time

_MESSAGE_KEYS = frozenset("id sessionID role modelID providerID system error agent finish".split())


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
    data = error.get("data")
    message = data.get("message") if isinstance(data, dict) else None
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
    time = info.get("time")
    time = time if isinstance(time, dict) else {}
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
    time = info.get("time")
    created = parse_epoch_ms(time.get("created")) if isinstance(time, dict) else None
    return None if created is None else format_iso_time(created)
