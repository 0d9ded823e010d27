"""What `assay bundle` reads: a recorded run, or the summary of a pytest session."""

import os
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from assay.errors import ConfigError
from assay.models import Sample
from assay.record import Run, RunRow
from assay.record.runs import PROVENANCE
from assay.sources.bundle import BundledRun

from .bundle_code import CodeRequest, SelectedCode, collect_code
from .eval_file import split_target
from .run_code import read_code
from .store_option import open_store


@dataclass(frozen=True)
class BundleInput:
    """One run and its code."""

    run: Run
    row: RunRow
    code: SelectedCode | None
    notes: tuple[str, ...] = ()

    def runs(self) -> Iterator[tuple[BundledRun, Iterator[Sample]]]:
        """Each run with its samples. The counts are filled in by what is read."""
        spec = self.row.spec
        described = BundledRun(
            id=spec.id,
            name=spec.name,
            status=self.row.status,
            config={key: value for key, value in spec.config.items() if key not in PROVENANCE},
            config_fingerprint=spec.config_fingerprint,
            # The name alone: the folders around it are those of this machine.
            dataset=os.path.basename(spec.dataset) if os.path.isabs(spec.dataset) else spec.dataset,
            dataset_fingerprint=spec.dataset_fingerprint,
            repeats=spec.repeats,
            created_at=spec.created_at,
            results=0,
            rows=0,
        )
        yield described, self.run.samples()


def open_bundle_input(args: Namespace, stack: ExitStack) -> BundleInput:
    """Find the run and its code. Raises `ConfigError` before anything is written."""
    run = stack.enter_context(open_store(args)).run(args.source)
    row = run.row()
    notes = []
    if row.status == "running":
        raise ConfigError(
            f"run {run.id!r} is still being recorded", hint="bundle it when it has ended"
        )
    if row.status != "completed":
        notes.append(f"the run is {row.status}: rows that were not evaluated are not bundled")
    if row.spec.config.get("session") is not None:
        notes.append("the session that the run continued is not bundled; repeat with --session ID")
    code = None if args.no_code else collect_code(_request(args, row))
    return BundleInput(run, row, code, tuple(notes))


def _request(args: Namespace, row: RunRow) -> CodeRequest:
    start = Path.cwd()
    recorded = read_code(row.spec.config)
    if args.code is not None:
        path, config = split_target(args.code)
    elif recorded is not None:
        path, config = Path(recorded.file), recorded.config
    else:
        raise ConfigError(
            f"run {row.id!r} does not record which file defines it",
            hint="name it with --code FILE.py, or pass --no-code to bundle the samples only",
        )
    by_hand = args.code is not None or recorded is None
    return CodeRequest(
        kind="eval",
        scripts=(start / path,),
        start=start,
        config=config,
        options={} if recorded is None else recorded.options,
        modules={} if by_hand or recorded is None else recorded.modules,
        leave_out=frozenset({(start / row.spec.dataset).resolve()}),
        allow_changed=args.allow_changed_code,
        allow_suspected=frozenset(args.allow_suspected_secret),
    )
