"""`assay ingest`: import recorded agent sessions as samples, into a file or the store."""

import asyncio
import os
import secrets
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path
from typing import get_args

from assay.errors import AssayError, BadRow, ConfigError, StoreError
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
from assay.store import Run, RunSpec, Store, sample_key
from assay.types import Sample, stable_id

from .arguments import add_count, add_flag, add_report_options, parse_moment
from .exit_status import EXIT_INCONCLUSIVE, EXIT_PASS
from .ingest_report import FORMATS, IngestReport
from .output import print_message, print_report, write_samples
from .sample_input import refuse_to_overwrite
from .store_option import add_store_option, build_next_command, find_store_location

# Their formats mark reverted and synthetic messages.
_SOURCES_WITH_OPTIONS = ("opencode", "claude-code", "codex")
# Samples are held in memory until their batch is committed.
_STORE_BATCH_SIZE = 64

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
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 all sessions were imported, 3 some cannot be read and were skipped."""
    if args.source not in SESSION_SOURCES:
        # Before a default folder is looked for: the name may be misspelled.
        find_session_source(args.source)
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
    if args.output is None:
        _store_sessions(stream, account, args)
    else:
        _refuse_to_overwrite_sessions(Path(args.output), path, args.source)
        write_samples(args.output, _iterate_samples(stream, account), account.format_line)
    _print_skipped(account)
    if account.run is not None:
        account.next = build_next_command(args, "show", account.run)
    print_report(args, account.lines(), account.plain())
    return EXIT_PASS if account.complete else EXIT_INCONCLUSIVE


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


def _store_sessions(stream: SessionStream, account: IngestReport, args: Namespace) -> None:
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
    first = next(samples, None)
    with Store.open(find_store_location(args)) as store:
        account.store, account.run, account.stored = store.where, spec.id, 0
        run = store.start_run(spec)
        try:
            if first is not None:
                asyncio.run(_record_sessions(run, spec, first, samples, account))
        except BaseException:
            run.finish("interrupted")
            raise
        # Skipped sessions do not make the run incomplete: a second import would skip them again.
        run.finish("completed")


async def _record_sessions(
    run: Run, spec: RunSpec, first: Sample, samples: Iterator[Sample], account: IngestReport
) -> None:
    async with run.writer() as writer:

        async def record(sample: Sample, index: int) -> None:
            sample.index = index
            key = sample_key(spec.id, sample.id, 0, spec.config_fingerprint)
            try:
                inserted = await writer.record(key, sample)
            except AssayError as error:
                # Other errors are about this sample; a failing store fails for every sample.
                if isinstance(error, StoreError):
                    raise
                account.skip(sample.id, BadRow(error.message, where=f"session {sample.id}"))
                return
            account.count_stored(sample.id, inserted=inserted)

        numbered = enumerate(chain([first], samples))
        while batch := list(islice(numbered, _STORE_BATCH_SIZE)):
            await asyncio.gather(*(record(sample, index) for index, sample in batch))
