"""Recorded OpenCode sessions of every version, streamed as samples."""

from ..session_heads import Unreadable
from .assembly import SampleOptions
from .choice import SessionChoice
from .stream import Children, SessionReading, SessionStream, read_opencode

__all__ = [
    "Children",
    "SampleOptions",
    "SessionChoice",
    "SessionReading",
    "SessionStream",
    "Unreadable",
    "read_opencode",
]
