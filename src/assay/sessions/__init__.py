"""Readers of recorded agent sessions: one per agent, all of them streams of samples."""

import lazy_loader

__getattr__, __dir__, _ = lazy_loader.attach_stub(__name__, __file__)

__all__ = [
    "Children",
    "RecordedSession",
    "SampleOptions",
    "SessionChoice",
    "SessionMeta",
    "SessionReading",
    "SessionStream",
    "UnreadableSession",
    "read_atif",
    "read_claude_code",
    "read_codex",
    "read_inspect",
    "read_opencode",
    "read_plugin_sessions",
]
