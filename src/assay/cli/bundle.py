"""`assay bundle`: a run with its results, dataset rows and code as one file."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

from rich.filesize import decimal

from assay import __version__
from assay.datasets import (
    CODE,
    DATASET_FILE,
    MANIFEST,
    RESULTS,
    Bundle,
    BundledFile,
    BundledRun,
    BundleManifest,
    is_bundle,
    write_archive,
)
from assay.errors import ConfigError
from assay.stats import format_plural
from assay.types import (
    Sample,
    Status,
    check_file_target,
    compute_file_sha256,
    create_private,
    open_private,
    redact,
)

from .arguments import add_flag, add_report_options
from .bundle_input import BundleInput, open_bundle_input
from .exit_status import EXIT_PASS
from .output import format_field, format_fields, print_report, write_whole
from .resume import join_command
from .store_option import add_store_option

# The fields of a dataset row before its evaluation.
_CLEARED_OUTCOME: dict[str, Any] = {
    "score": None,
    "status": Status.PENDING,
    "failure": None,
    "group_index": None,
    "rollout_id": None,
}
_CLEARED_ROLLOUT: dict[str, Any] = {
    "trajectory": None,
    "tokens": [],
    "loss_mask": [],
    "rollout_log_probs": None,
}
# The manifest lists all of them; the terminal shows enough to recognise the project.
_MAX_LISTED_CODE_FILES = 10


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "source",
        metavar="RUN|SUMMARY",
        help="run id, unique prefix, or `latest`; or the summary file of a pytest session",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.tar.gz", type=Path, required=True, help="file to write"
    )
    add_flag(parser, "--force", "overwrite the file if it exists")
    code = parser.add_mutually_exclusive_group()
    code.add_argument(
        "--code",
        metavar="FILE.py[:config]",
        help="evaluation file of the run (default: the one that `assay eval` recorded)",
    )
    code.add_argument("--no-code", action="store_true", help="bundle results and dataset rows only")
    add_flag(
        parser, "--allow-changed-code", "bundle the current code although it changed since the run"
    )
    parser.add_argument(
        "--allow-suspected-secret",
        action="append",
        default=[],
        metavar="FILE",
        help="bundle this file although it contains a suspected secret (repeatable)",
    )
    add_store_option(parser)
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Write the bundle. Exit status 0."""
    output: Path = args.output
    if not is_bundle(output):
        message = f"{output} does not have the suffix of a bundle"
        raise ConfigError(message, hint="end the name in .tar.gz")
    check_file_target(output)
    if output.exists() and not args.force:
        raise ConfigError(f"{output} already exists", hint="pass --force to overwrite it")
    if not output.parent.is_dir():
        raise ConfigError(f"the folder {output.parent} does not exist")
    with ExitStack() as stack:
        given = open_bundle_input(args, stack)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="assay-bundle-")))
        manifest = _write_parts(given, folder)
        with write_whole(output) as unfinished:
            with unfinished.open("r+b") as file:
                write_archive(file, _list_bundle_members(given, folder))
            # Read back before it is published: a bundle that cannot be opened is not left behind.
            Bundle.open(unfinished)
    size = decimal(output.stat().st_size)
    lines = [format_field("bundle", f"{output} ({size})"), *format_bundle_manifest(manifest)]
    lines += [format_field("note", note) for note in given.notes]
    if manifest.code is not None:
        command = join_command(["assay", "eval", "--bundle", output.name])
        lines += ["", "to repeat it elsewhere:", f"  {command}"]
    plain = manifest.model_dump(mode="json")
    print_report(args, lines, {"bundle": str(output), **plain, "notes": list(given.notes)})
    return EXIT_PASS


def _write_parts(given: BundleInput, folder: Path) -> BundleManifest:
    """Write the samples and the manifest into a temporary folder."""
    runs, redacted = [], 0
    with open_private(folder / RESULTS) as results, open_private(folder / DATASET_FILE) as dataset:
        for run, samples in given.runs:
            counted, lines = write_run(run, samples, results, dataset)
            runs.append(counted)
            redacted += lines
    listed = {name: path for name, path in _list_bundle_members(given, folder) if name != MANIFEST}
    manifest = BundleManifest(
        assay=__version__,
        runs=tuple(runs),
        code=None if given.code is None else given.code.code,
        left_out=() if given.code is None else given.code.left_out,
        redacted=redacted,
        files={
            name: BundledFile(size=path.stat().st_size, sha256=compute_file_sha256(path))
            for name, path in listed.items()
        },
    )
    plain = _redact_values(manifest.model_dump(mode="json"))
    # Digests look like secrets to the redactor, but a bundle cannot be verified without them.
    plain["files"] = manifest.model_dump(mode="json")["files"]
    text = json.dumps(plain, indent=1, sort_keys=True, ensure_ascii=False)
    create_private(folder / MANIFEST)
    (folder / MANIFEST).write_text(f"{text}\n", encoding="utf-8")
    return manifest


def write_run(
    run: BundledRun, samples: Iterable[Sample], results: TextIO, dataset: TextIO
) -> tuple[BundledRun, int]:
    """Write results and dataset rows; return the run with its counts, and the redacted lines."""
    # Trajectories of a run with an endpoint are results; of others they belong to the dataset.
    cleared = _CLEARED_OUTCOME | ({} if run.config.get("endpoint") is None else _CLEARED_ROLLOUT)
    count = rows = redacted = 0
    last: str | None = None
    # Samples are streamed, so that a run larger than memory can be bundled.
    for sample in samples:
        redacted += _write_redacted(results, sample)
        count += 1
        # Repeats of a row are adjacent.
        if sample.id != last:
            redacted += _write_redacted(dataset, sample.model_copy(update=cleared))
            rows += 1
        last = sample.id
    return run.model_copy(update={"results": count, "rows": rows}), redacted


def _write_redacted(file: TextIO, sample: Sample) -> bool:
    """Write a sample as one line; return whether secrets in it were redacted."""
    line = sample.to_json()
    if has_secrets := redact(line) != line:
        # Redacted value by value: in the raw line a replacement could break the JSON.
        plain = _redact_values(json.loads(line))
        line = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    file.write(f"{line}\n")
    return has_secrets


def _redact_values(value: Any) -> Any:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _redact_values(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_redact_values(each) for each in value]
    return value


def _list_bundle_members(given: BundleInput, folder: Path) -> list[tuple[str, Path]]:
    code = {} if given.code is None else given.code.files
    return [
        (MANIFEST, folder / MANIFEST),
        *((f"{CODE}{name}", path) for name, path in code.items()),
        (DATASET_FILE, folder / DATASET_FILE),
        (RESULTS, folder / RESULTS),
    ]


def format_bundle_manifest(manifest: BundleManifest) -> Iterator[str]:
    """Yield the report lines of a bundle's contents."""
    for run in manifest.runs:
        model = ""
        if isinstance(endpoint := run.config.get("endpoint"), dict):
            address = f" at {endpoint['api_base']}" if endpoint.get("api_base") else ""
            model = f" ({endpoint.get('provider')}:{endpoint.get('model')}{address})"
        yield format_field("run", f"{run.test or run.id}{model}")
        rows = format_plural(run.rows, "dataset row")
        yield format_field("", f"{format_plural(run.results, 'result')} of {rows}")
    names = sorted(name.removeprefix(CODE) for name in manifest.files if name.startswith(CODE))
    code = names[:_MAX_LISTED_CODE_FILES]
    if len(code) < len(names):
        code.append(f"and {len(names) - len(code)} more")
    redacted = (
        f"secrets in {format_plural(manifest.redacted, 'line')}" if manifest.redacted else None
    )
    yield from format_fields(
        {
            "code": code if manifest.code is not None else "none",
            "left out": [f"{name} (a file for secrets)" for name in manifest.left_out],
            "redacted": redacted,
        }
    )
