"""The input of `assay bundle`: a recorded run, or the summary of a pytest session."""

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from assay.datasets import BundledRun, load_samples
from assay.errors import ConfigError
from assay.store import PROVENANCE, RunRow
from assay.types import Sample

from .bundle_code import CodeRequest, SelectedCode, collect_code
from .eval_file import split_target
from .run_code import read_run_code
from .sample_input import find_summary_rows, is_sample_file
from .store_option import find_store_location, open_store

# Pytest reads a file only if it has this section.
_PYTEST_CONFIG_SECTIONS = {
    "pytest.ini": "[pytest]",
    "pyproject.toml": "[tool.pytest",
    "tox.ini": "[pytest]",
    "setup.cfg": "[tool:pytest]",
}


class _SummaryModel(BaseModel):
    # Newer plugins may write further fields.
    model_config = ConfigDict(frozen=True, extra="ignore")


class SummaryTest(_SummaryModel):
    """One test of a summary."""

    test: str
    nodeid: str = ""
    file: str
    run: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)
    config_fingerprint: str | None = None
    dataset: str | None = None
    dataset_fingerprint: str | None = None


class PytestSummary(_SummaryModel):
    """The fields of a summary that a bundle uses."""

    created: str
    tests: tuple[SummaryTest, ...] = Field(min_length=1)
    code: dict[str, str] = Field(default_factory=dict)
    """Files of the tests and of their imports, with the sha256 of each."""


@dataclass(frozen=True)
class BundleInput:
    """The runs to bundle and their code."""

    runs: Iterator[tuple[BundledRun, Iterator[Sample]]]
    """Each run with its samples; its counts are filled in after reading."""

    code: SelectedCode | None
    notes: tuple[str, ...] = ()


def open_bundle_input(args: Namespace, stack: ExitStack) -> BundleInput:
    """Find the runs and their code. Raises `ConfigError` before anything is written."""
    if is_sample_file(args.source):
        return _open_summary(args)
    run = stack.enter_context(open_store(args)).run(args.source)
    row = run.row()
    notes = []
    if row.status == "running":
        raise ConfigError(
            f"run {run.id!r} is still in progress", hint="bundle it when it has ended"
        )
    if row.status != "completed":
        notes.append(f"the run is {row.status}: rows that were not evaluated are not bundled")
    if row.spec.config.get("session") is not None:
        notes.append("the session that the run continued is not bundled; repeat with --session ID")
    code = None if args.no_code else collect_code(_build_code_request(args, row))
    return BundleInput(iter([(_describe_bundled_run(row), run.samples())]), code, tuple(notes))


def _open_summary(args: Namespace) -> BundleInput:
    path = Path(args.source)
    rows = find_summary_rows(path) if path.is_file() else None
    if rows is None:
        raise ConfigError(
            f"{path} is not the summary of a pytest session",
            hint="name a run of the store, or the summary file that pytest wrote",
        )
    if args.code is not None:
        raise ConfigError(
            "--code applies to a run, not to a summary",
            hint="leave it out: a summary names the files of its tests",
        )
    try:
        summary = PytestSummary.model_validate_json(path.read_bytes())
        runs = [_describe_bundled_test(n, test, summary) for n, test in enumerate(summary.tests, 1)]
        request = None if args.no_code else _build_summary_request(args, path, summary)
    except ValueError as error:
        # Also the ValidationError of pydantic, of which the first lines name field and problem.
        problem = " ".join(str(error).split()).partition(" [type=")[0]
        raise ConfigError(
            f"{path} is damaged: {problem}", hint="run the tests again to write it anew"
        ) from None
    code = None if request is None else collect_code(request)
    return BundleInput(_read_summary_runs(runs, rows), code)


def _describe_bundled_test(number: int, test: SummaryTest, summary: PytestSummary) -> BundledRun:
    repeats = test.config.get("repeats")
    return BundledRun(
        id=test.run or f"test-{number}",
        name=test.test,
        status="completed",
        config=test.config,
        config_fingerprint=test.config_fingerprint,
        dataset=None if test.dataset is None else _strip_dataset_folder(test.dataset),
        dataset_fingerprint=test.dataset_fingerprint,
        repeats=repeats if isinstance(repeats, int) and repeats > 0 else 1,
        created_at=summary.created,
        test=test.test,
        results=0,
        rows=0,
    )


def _read_summary_runs(
    runs: list[BundledRun], rows: Path
) -> Iterator[tuple[BundledRun, Iterator[Sample]]]:
    """Yield each test with its samples, which are adjacent in the file."""
    samples = iter(load_samples(rows).with_repeats())
    # One sample is read ahead to find where the next test starts.
    ahead = next(samples, None)

    def take(test: str | None) -> Iterator[Sample]:
        nonlocal ahead
        while ahead is not None and (ahead.__pydantic_extra__ or {}).get("test") == test:
            yield ahead
            ahead = next(samples, None)

    for run in runs:
        yield run, take(run.test)
    if ahead is not None:
        raise ConfigError(
            f"sample {ahead.id!r} belongs to no test of the summary, or to an earlier one",
            where=str(rows),
            hint="run the tests again to write both files anew",
        )


def _strip_dataset_folder(dataset: str) -> str:
    # The folders of this machine do not belong in a file that is shared.
    return os.path.basename(dataset) if os.path.isabs(dataset) else dataset


def _describe_bundled_run(row: RunRow) -> BundledRun:
    spec = row.spec
    return BundledRun(
        id=spec.id,
        name=spec.name,
        status=row.status,
        config={key: value for key, value in spec.config.items() if key not in PROVENANCE},
        config_fingerprint=spec.config_fingerprint,
        dataset=_strip_dataset_folder(spec.dataset),
        dataset_fingerprint=spec.dataset_fingerprint,
        repeats=spec.repeats,
        created_at=spec.created_at,
        results=0,
        rows=0,
    )


def _build_code_request(args: Namespace, row: RunRow) -> CodeRequest:
    recorded = read_run_code(row.spec.config)
    # The run may have been made in the folder of the store, while the command runs elsewhere.
    start, where = Path.cwd(), os.fspath(find_store_location(args) or "")
    if args.code is None and recorded is not None and where and "://" not in where:
        around = Path(os.path.abspath(where)).parent
        project = around.parent if around.name == ".assay" else around
        if not (start / recorded.file).is_file() and (project / recorded.file).is_file():
            start = project
    if args.code is not None:
        path, config = split_target(args.code)
    elif recorded is not None:
        path, config = Path(recorded.file), recorded.config
    else:
        bundled = row.spec.config.get("bundle") is not None
        raise ConfigError(
            f"run {row.id!r} does not record which file defines it",
            hint="it was imported from a bundle: share that bundle, or pass --no-code"
            if bundled
            else "name it with --code FILE.py, or pass --no-code to bundle the samples only",
        )
    # A file named by hand may differ from the recorded one, so digests are not compared.
    by_hand = args.code is not None or recorded is None
    dataset = None if recorded is None else recorded.dataset
    return CodeRequest(
        kind="eval",
        scripts=(start / path,),
        start=start,
        config=config,
        options={} if recorded is None else recorded.options,
        modules={} if by_hand or recorded is None else recorded.modules,
        # The bundle contains the rows that were used instead of the whole dataset file.
        leave_out=frozenset() if dataset is None else frozenset({(start / dataset).resolve()}),
        allow_changed=args.allow_changed_code,
        allow_suspected=frozenset(args.allow_suspected_secret),
    )


def _build_summary_request(args: Namespace, path: Path, summary: PytestSummary) -> CodeRequest:
    files = sorted({test.file for test in summary.tests})
    around = [Path(os.path.abspath(path)).parent, Path.cwd()]
    candidates = [folder for start in around for folder in (start, *start.parents)]
    root = next(
        (each for each in candidates if all((each / file).is_file() for file in files)), None
    )
    if root is None:
        raise ConfigError(
            f"the test files of {path} are neither near it nor in the current folder",
            hint="start the command in the project; or pass --no-code to bundle the samples only",
        )
    folders = {folder for file in files for folder in Path(file).parents}
    conftests = sorted(
        path for folder in folders if (path := root / folder / "conftest.py").is_file()
    )
    settings = [
        root / name
        for name, section in _PYTEST_CONFIG_SECTIONS.items()
        if (root / name).is_file() and section in (root / name).read_text("utf-8", "replace")
    ]
    datasets = (root / test.dataset for test in summary.tests if test.dataset)
    return CodeRequest(
        kind="pytest",
        scripts=(*(root / file for file in files), *conftests),
        start=root,
        root=root,
        tests=tuple(dict.fromkeys(test.nodeid or test.test for test in summary.tests)),
        more_files=tuple(settings),
        modules=summary.code,
        leave_out=frozenset(each.resolve() for each in datasets),
        allow_changed=args.allow_changed_code,
        allow_suspected=frozenset(args.allow_suspected_secret),
    )
