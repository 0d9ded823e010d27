"""The summary file of a session, and beside it every sample as one line of JSON."""

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from pydantic_core import to_json

from assay import __version__
from assay.errors import ConfigError
from assay.runner import read_git_commit
from assay.scorers import hash_loaded_files
from assay.types import (
    Sample,
    compute_file_sha256,
    describe_error,
    make_private_folder,
    open_private,
    replace_private,
    write_private,
)

from .evaluation_record import TOTALS, Record

SUMMARY_FORMAT = 1


def rows_path_of(summary: Path) -> Path:
    """Return the path of the file with the samples of a summary."""
    return summary.with_suffix(".jsonl")


def write_summary(
    summary: Path, records: Sequence[Record], samples: Iterable[Sample], *, root: Path
) -> None:
    """Write the summary and the samples. Each file appears whole or not at all."""
    rows, digest = rows_path_of(summary), hashlib.sha256()
    # The samples first: a summary without its samples would be useless as a baseline.
    with _open_replacement(rows) as file:
        for sample in samples:
            line = f"{sample.to_json()}\n"
            file.write(line)
            digest.update(line.encode())
    scores = [record.score for record in records if record.score is not None]
    totals = {}
    for name in TOTALS:
        known = [value for record in records if (value := getattr(record, name)) is not None]
        totals[name] = sum(known) if known else None
    plain = {
        "format": SUMMARY_FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "git_commit": read_git_commit(root),
        "versions": {"assay": __version__, "python": platform.python_version()},
        "score": sum(scores) / len(scores) if scores else None,
        "passed": all(record.passed for record in records),
        "results": sum(record.results for record in records),
        "judged": sum(record.judged for record in records),
        "invalid": sum(record.invalid for record in records),
        "failed": sum(sum(record.failed.values()) for record in records),
        **totals,
        "unknown": {
            name: sum(record.unknown.get(name, 0) for record in records) for name in TOTALS
        },
        "tests": [{**asdict(record), "outcome": record.outcome} for record in records],
        "code": _digest_code(records, root),
        "rows": rows.name,
        "rows_sha256": digest.hexdigest(),
    }
    write_private(summary, f"{json.dumps(plain, indent=2)}\n")


@contextmanager
def _open_replacement(path: Path) -> Iterator[TextIO]:
    """Open a file that replaces `path` once it is complete."""
    # The process id is in the name because two sessions may end at the same time.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.new")
    make_private_folder(path.parent)
    try:
        with open_private(unfinished) as file:
            yield file
        replace_private(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _digest_code(records: Sequence[Record], root: Path) -> dict[str, str]:
    # The SHA-256 of every project file that could explain a change of the scores.
    loaded = hash_loaded_files(root)
    found = {name: digest for name, digest in loaded.items() if not Path(name).is_absolute()}
    files = {Path(record.file) for record in records}
    around = {folder / "conftest.py" for file in files for folder in file.parents}
    for file in files | around:
        # With pytest-xdist the workers imported these files, not this process.
        if file.as_posix() not in found and (root / file).is_file():
            found[file.as_posix()] = compute_file_sha256(root / file)
    return dict(sorted(found.items()))


def digest_rows(rows: Iterable[object]) -> str:
    """Return the SHA-256 of rows in memory."""
    digest = hashlib.sha256()
    for row in rows:
        # Other objects count by type: their repr may contain an address that changes.
        try:
            plain = to_json(
                row, inf_nan_mode="constants", fallback=lambda each: type(each).__name__
            )
        except ValueError:
            plain = type(row).__name__.encode()  # loading the row will report the problem
        digest.update(plain + b"\n")
    return digest.hexdigest()


def copy_summary(summary: Path, target: Path) -> None:
    """Make a summary and its samples the baseline at `target`."""
    rows = rows_path_of(target)
    with rows_path_of(summary).open(encoding="utf-8") as source, _open_replacement(rows) as file:
        shutil.copyfileobj(source, file)
    plain = {**read_summary_file(summary), "rows": rows.name}
    write_private(target, f"{json.dumps(plain, indent=2)}\n")


def read_summary_file(path: Path) -> dict[str, Any]:
    """Read a summary of the supported format. Raises `ConfigError` for anything else."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        known = plain["format"] == SUMMARY_FORMAT
        names = [_check_test_entry(test)["test"] for test in plain["tests"]] if known else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"the file is not a summary of evaluations: {type(error).__name__}: {error}",
            where=str(path),
        ) from error
    if not known:
        raise ConfigError(
            f"the summary has format {plain['format']!r}, not {SUMMARY_FORMAT}",
            where=str(path),
            hint="rewrite it with --assay-update-baseline",
        )
    if len(set(names)) != len(names):
        raise ConfigError("the summary contains a test twice", where=str(path))
    return dict(plain)


def _check_test_entry(test: Any) -> dict[str, Any]:
    """Return a test of a summary. Raises `TypeError` if it cannot be compared."""
    name = test["test"]
    config, judged = test.get("config") or {}, test.get("judged", 0)
    if not isinstance(name, str) or not isinstance(config, dict):
        raise TypeError("a test has no name, or a configuration that is not an object")
    bounds = config.get("bounds") or [0, 1]
    if type(judged) is not int or [type(each) in (int, float) for each in bounds] != [True, True]:
        raise TypeError(f"{name} has {judged!r} judged results and the bounds {bounds!r}")
    return dict(test)


def check_rows(summary: Path) -> None:
    """Raise `ConfigError` unless the samples beside a summary are the ones it was made from."""
    rows = rows_path_of(summary)
    if not rows.is_file():
        raise ConfigError(
            "the file with the samples of the summary is missing",
            where=str(rows),
            hint="keep both files of a baseline together",
        )
    if compute_file_sha256(rows) != read_summary_file(summary).get("rows_sha256"):
        raise ConfigError(
            "the file contains other samples than the summary beside it was made from",
            where=str(rows),
            hint="keep both files of a baseline together and unchanged, line endings included",
        )


def read_rows(summary: Path) -> Iterator[Sample]:
    """Yield the samples of a summary, one at a time. Raises `ConfigError` for any other line."""
    rows = rows_path_of(summary)
    with rows.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                sample = Sample.from_json(line)
            except (ValueError, RecursionError) as error:
                raise ConfigError(
                    f"the line is not a sample: {describe_error(error)}",
                    where=f"{rows}:{number}",
                    hint="rewrite the baseline with --assay-update-baseline",
                ) from error
            yield sample
