"""The names of session sources, and the sources of plug-ins."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import ConfigError
from assay.registry import find_plugin, list_names

from .session_choice import SessionChoice, UnreadableSession
from .session_reading import Children
from .session_stream import RecordedSession, SessionFinder, SessionStream, StreamOptions

SESSION_SOURCES = ("opencode", "claude-code", "codex", "atif", "inspect")
"""The sources that assay reads itself."""


def find_session_source(name: str) -> SessionFinder:
    """Return the source of a plug-in: a function from a path to the sessions that it contains.

    It yields a `RecordedSession` or an `UnreadableSession` for each, and texts as notes. Raises
    `ConfigError` for an unknown name, and for a plug-in that is not a function.
    """
    plugin = find_plugin("assay.session_sources", name)
    if plugin is None:
        known = ", ".join(list_names("assay.session_sources", SESSION_SOURCES))
        raise ConfigError(f"unknown source {name!r}", hint=f"the sources are {known}")
    if not callable(plugin.value):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the source is of type `{kind}`, not a function")
    find: Any = plugin.value

    def find_sessions(path: Path) -> Iterator[RecordedSession | UnreadableSession | str]:
        for found in find(path):
            if not isinstance(found, RecordedSession | UnreadableSession | str):
                kind = type(found).__name__
                raise plugin.build_error(f"the source yields a `{kind}`, not a RecordedSession")
            yield found

    return find_sessions


def read_plugin_sessions(
    name: str, path: Path, choice: SessionChoice | None = None, *, children: Children = "inline"
) -> SessionStream:
    """Read the sessions at `path` with the source of a plug-in, one at a time."""
    if not path.exists():
        raise ConfigError("the file or folder does not exist", where=str(path))
    options = StreamOptions(choice or SessionChoice(), children)
    return SessionStream(path, find_session_source(name), options)
