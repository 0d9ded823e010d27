"""Titles of Codex sessions: `session_index.jsonl` in Codex's home, one entry for each change."""

from pathlib import Path

from assay.errors import BadRow

from .foreign_values import text_or_none
from .session_lines import iterate_records

_FILE = "session_index.jsonl"


def read_titles(home: Path, path: Path) -> dict[str, str]:
    """Return the last title of each session, from the home and from homes below `path`.

    A missing or damaged index loses titles, never sessions.
    """
    files = {home / _FILE, *(path.rglob(_FILE) if path.is_dir() else ())}
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
