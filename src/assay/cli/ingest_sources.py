"""The readers of recorded sessions, by the name of the agent that recorded them."""

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from assay.errors import ConfigError
from assay.sessions import (
    SampleOptions,
    SessionChoice,
    SessionStream,
    read_atif,
    read_claude_code,
    read_codex,
    read_inspect,
    read_opencode,
)

SOURCES = ("opencode", "claude-code", "codex", "atif", "inspect")
# Their formats do not mark reverted or synthetic messages.
_SOURCES_WITHOUT_OPTIONS = ("atif", "inspect")


def read_sessions(args: Namespace, path: Path) -> SessionStream:
    """Open the sessions that the command line selects; nothing is read yet."""
    choice = SessionChoice(args.since, args.project, frozenset(args.session), args.title)
    options = SampleOptions(
        keep_reverted=args.keep_reverted,
        synthetic=args.synthetic,
        raw_records=args.raw_records,
    )
    _check_source_options(args)
    if args.source == "opencode":
        return read_opencode(path, choice, children=args.children, options=options)
    if args.source == "claude-code":
        return read_claude_code(path, choice, children=args.children, options=options)
    if args.source == "codex":
        return read_codex(path, choice, children=args.children, options=options)
    if args.source == "atif":
        return read_atif(path, choice, children=args.children)
    return read_inspect(path, choice)


def _check_source_options(args: Namespace) -> None:
    meaningless = [
        flag
        for flag, given in (
            ("--keep-reverted", args.keep_reverted and args.source in _SOURCES_WITHOUT_OPTIONS),
            ("--synthetic", args.synthetic and args.source in _SOURCES_WITHOUT_OPTIONS),
            ("--raw-records", args.raw_records and args.source != "claude-code"),
            ("--children", args.children != "inline" and args.source == "inspect"),
        )
        if given
    ]
    if meaningless:
        raise ConfigError(f"{meaningless[0]} has no effect on {args.source} sessions")


def find_default_path(source: str, environment: Mapping[str, str]) -> Path:
    """Return the folder in which an agent keeps its sessions on this machine."""
    home = Path.home()
    if source == "opencode":
        share = environment.get("XDG_DATA_HOME") or str(home / ".local" / "share")
        root = Path(share) / "opencode"
        # The name of another database; an absolute path replaces the folder.
        return root / environment["OPENCODE_DB"] if environment.get("OPENCODE_DB") else root
    if source == "claude-code":
        return Path(environment.get("CLAUDE_CONFIG_DIR") or home / ".claude")
    if source == "codex":
        return Path(environment.get("CODEX_HOME") or home / ".codex")
    raise ConfigError(f"{source} has no default folder", hint="name the file or folder to read")
