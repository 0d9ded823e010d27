"""`assay ingest`: import recorded agent sessions as samples, into a file or the store."""

import os
import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import get_args

from assay.errors import ConfigError
from assay.runner import Progress, RunControl, Stop, record_samples, start_or_resume
from assay.sessions import (
    SESSION_SOURCES,
    Children,
    SampleOptions,
    SessionChoice,
    SessionStream,
    find_session_source,
    read_atif,
    read_claude_code,
    read_codex,
    read_inspect,
    read_opencode,
    read_plugin_sessions,
)
from assay.store import RunSpec, Store
from assay.types import Sample, stable_id

from .arguments import add_count, add_flag, add_report_options, parse_moment
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS
from .ingest_report import FORMATS, IngestReport
from .output import print_message, print_report, write_samples
from .progress_bar import choose_display
from .resume import build_next_command, format_options, format_resume_hint, join_resume_command
from .sample_input import refuse_to_overwrite
from .signals import exit_interrupted, run_until_stopped
from .store_option import add_store_option, find_store_location

# Their formats mark reverted and synthetic messages.
_SOURCES_WITH_OPTIONS = ("opencode", "claude-code", "codex")

_RESUME_OPTIONS = (
    "project session title children keep_reverted synthetic raw_records store"
).split()
_OPTION_DEFAULTS = {
    "children": "inline",
    "keep_reverted": False,
    "synthetic": False,
    "raw_records": False,
}

# Names of files that agents record. Such a file is never overwritten.
_SESSION_FILE_PATTERNS = {
    "opencode": ("*.json", "*.db", "*.db-*"),
    "claude-code": ("*.jsonl",),
    "codex": ("rollout-*", "session_index.jsonl"),
    "atif": ("*.json", "*.jsonl"),
    "inspect": ("*.eval", "*.json"),
}
# Enough for the first key, which identifies the files that this command writes.
_OUTPUT_PREFIX_BYTES = 20


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help=f"read sessions of {', '.join(SESSION_SOURCES)}, or of a plug-in by its name",
    )
    parser.add_argument(
        "path",
        metavar="PATH",
        nargs="?",
        type=Path,
        help="data folder, database or recorded files (default: the agent's own data folder)",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="write JSON lines here, - for stdout, instead of the store",
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="sample", help="format of the file (default: sample)"
    )
    add_count(
        parser,
        "--max-output-chars",
        "truncate longer tool outputs in the file, with a note (default: no limit)",
    )
    parser.add_argument(
        "--since",
        type=parse_moment,
        metavar="WHEN",
        help="only sessions used since 2026-02-14, or in the last 30d",
    )
    parser.add_argument(
        "--project",
        metavar="NAME|FOLDER|ID",
        help="only sessions of this project, or below this folder",
    )
    parser.add_argument(
        "--session",
        metavar="ID",
        action="append",
        default=[],
        help="only this session (repeatable)",
    )
    parser.add_argument("--title", metavar="TEXT", help="only sessions with this text in the title")
    parser.add_argument(
        "--children",
        choices=get_args(Children),
        default="inline",
        help="import sessions of subagents as samples of their own, inside their parent's "
        "(default), or not at all",
    )
    add_flag(parser, "--keep-reverted", "keep messages that the user reverted")
    add_flag(parser, "--synthetic", "keep text that the agent program inserted into user messages")
    add_flag(parser, "--raw-records", "keep records that are not messages, unchanged (claude-code)")
    parser.add_argument("--resume", metavar="RUN", help="resume an interrupted import")
    add_store_option(parser)
    add_report_options(parser, quiet=True)


def main(args: Namespace) -> int:
    """Exit status: 0 all sessions were imported, 3 some cannot be read and were skipped."""
    if args.source not in SESSION_SOURCES:
        # Before a default folder is looked for: the name may be misspelled.
        find_session_source(args.source)
    if args.resume is not None and args.output is not None:
        raise ConfigError("--resume has no effect with an output file", hint="remove -o")
    for option, given in (
        (f"--format {args.format}", args.format != "sample"),
        ("--max-output-chars", args.max_output_chars is not None),
    ):
        if given and args.output is None:
            raise ConfigError(
                f"{option} has no effect without an output file",
                hint="add -o FILE; the store keeps whole samples, which `assay show` reads",
            )
    path = args.path if args.path is not None else find_default_path(args.source, os.environ)
    stream = _read_sessions(args, path)
    account = IngestReport(
        stream, output=args.output, format=args.format, max_output_chars=args.max_output_chars
    )
    complete = True
    if args.output is None:
        complete = _store_sessions(stream, account, args)
    else:
        _refuse_to_overwrite_sessions(Path(args.output), path, args.source)
        write_samples(args.output, _iterate_samples(stream, account), account.format_line)
    _print_skipped(account)
    if account.run is not None:
        account.next = build_next_command(args, "show", account.run)
    print_report(args, account.lines(), account.plain())
    if not complete:
        print_message(f"interrupted; {format_resume_hint(_build_ingest_command(args, account))}")
        exit_interrupted()
    return EXIT_PASS if account.complete else EXIT_INCONCLUSIVE


def _build_ingest_command(args: Namespace, account: IngestReport) -> str:
    """Build the command that resumes the import."""
    options = format_options(args, _RESUME_OPTIONS, _OPTION_DEFAULTS)
    if args.since is not None:
        # Absolute: `30d` would be another moment then.
        options += ["--since", args.since.isoformat()]
    paths = [] if args.path is None else [str(args.path)]
    return join_resume_command(["assay", "ingest", args.source, *paths, *options], account.run)


def _read_sessions(args: Namespace, path: Path) -> SessionStream:
    """Open the sessions that the command line selects; nothing is read yet."""
    unmarked = args.source not in _SOURCES_WITH_OPTIONS
    for flag, has_no_effect in (
        ("--keep-reverted", args.keep_reverted and unmarked),
        ("--synthetic", args.synthetic and unmarked),
        ("--raw-records", args.raw_records and args.source != "claude-code"),
        ("--children", args.children != "inline" and args.source == "inspect"),
    ):
        if has_no_effect:
            raise ConfigError(f"{flag} has no effect on {args.source} sessions")
    choice = SessionChoice(args.since, args.project, frozenset(args.session), args.title)
    if args.source not in SESSION_SOURCES:
        return read_plugin_sessions(args.source, path, choice, children=args.children)
    if args.source == "inspect":
        return read_inspect(path, choice)
    if args.source == "atif":
        return read_atif(path, choice, children=args.children)
    options = SampleOptions(
        keep_reverted=args.keep_reverted, synthetic=args.synthetic, raw_records=args.raw_records
    )
    if args.source == "claude-code":
        return read_claude_code(path, choice, children=args.children, options=options)
    if args.source == "codex":
        return read_codex(path, choice, children=args.children, options=options)
    return read_opencode(path, choice, children=args.children, options=options)


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


def _refuse_to_overwrite_sessions(target: Path, source: Path, agent: str) -> None:
    """Refuse a file that an agent may have recorded, but not one that this command wrote."""
    if not target.exists():
        return
    refuse_to_overwrite(target, (source, source / "opencode.db"))
    inside = target.resolve().is_relative_to(source.resolve())
    # The files of a plug-in's source may have any name.
    patterns = _SESSION_FILE_PATTERNS.get(agent, ("*",))
    named = any(target.match(pattern) for pattern in patterns)
    if not inside or not named:
        return
    own = agent in ("claude-code", "atif") and target.suffix == ".jsonl" and target.is_file()
    if own:
        with target.open("rb") as file:
            own = file.read(_OUTPUT_PREFIX_BYTES).startswith((b'{"id":', b'{"session_id":'))
    if not own:
        raise ConfigError(
            f"-o {target} exists in the input folder and may be a recorded session",
            hint="choose a path outside the input folder",
        )


def _iterate_samples(stream: SessionStream, account: IngestReport) -> Iterator[Sample]:
    """Yield the samples, and report each skipped session when it is reached."""
    for sample in stream:
        _print_skipped(account)
        yield sample


def _print_skipped(account: IngestReport) -> None:
    for each in account.skipped[account.named :]:
        print_message(f"skipped {each.session_id}: {each.problem}")
    account.named = len(account.skipped)


def _store_sessions(stream: SessionStream, account: IngestReport, args: Namespace) -> bool:
    """Record the sessions as a run. Returns False if it was interrupted."""
    config = {
        "ingest": args.source,
        "since": None if args.since is None else args.since.isoformat(),
        "project": args.project,
        "sessions": sorted(args.session),
        "title": args.title,
        "children": args.children,
        "keep_reverted": args.keep_reverted,
        "synthetic": args.synthetic,
        "raw_records": args.raw_records,
    }
    spec = RunSpec(
        id=f"{args.source}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        name=f"ingest {args.source}",
        config=config,
        config_fingerprint=stable_id(config),
        dataset=str(stream.path),
    )
    samples = _iterate_samples(stream, account)
    # The source is opened before the run is started: a wrong path leaves no empty run behind.
    first = list(islice(samples, 1))
    stop = Stop()
    with Store.open(find_store_location(args), create=args.resume is None) as store:
        run = start_or_resume(store, spec, args.resume, allow_changed_scorer=False)
        account.store, account.run, account.stored = store.where, run.id, run.totals.recorded
        with choose_display(quiet=args.quiet) as display:
            # Skipped sessions do not make the run incomplete: another import would skip them too.
            control = RunControl(Progress(), display.watch, stop, stops_early=False)

            async def record() -> None:
                numbered = _number_samples(chain(first, samples))
                await record_samples(run, numbered, control, account.settle)

            run_until_stopped(record, stop, display)
    return not stop.requested


def _number_samples(samples: Iterable[Sample]) -> Iterator[Sample]:
    for index, sample in enumerate(samples):
        sample.index = index
        yield sample
