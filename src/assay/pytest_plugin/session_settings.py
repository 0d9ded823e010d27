"""The command-line options for all evaluations of a session, checked before anything runs."""

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AssayError, MissingExtra
from assay.types import check_file_target

from .summary_file import check_rows, read_summary_file, rows_path_of


@dataclass(frozen=True)
class Settings:
    """The options of a session."""

    summary: Path
    baseline: Path | None
    tolerance: float | None
    update: bool
    store: str | Path
    store_must_be_named: bool
    """Whether `assay show` needs `--store` to find the runs."""

    max_samples: int | None
    model: str | None
    fail_on_error: str | None = None
    """The text of the option; `limits` parses it."""

    max_cost_usd: float | None = None
    replay: Path | None = None
    """A recording of model calls, or a folder with one for each test."""

    rows: Path | None = None
    """The dataset of a bundle, which replaces the datasets of the tests."""

    html: Path | None = None
    """The report to write at the end; an earlier one is overwritten, as the summary is."""

    def limits(self) -> dict[str, Any]:
        """Return the limits that override those of the tests. Raises `ConfigError`."""
        # Imported here: a session without evaluations must not load the runner.
        from assay.runner import check_max_cost, parse_fail_on_error

        given: dict[str, Any] = {}
        if self.fail_on_error is not None:
            given["fail_on_error"] = parse_fail_on_error(self.fail_on_error)
        if self.max_cost_usd is not None:
            check_max_cost(self.max_cost_usd, where="command line")
            given["max_cost_usd"] = self.max_cost_usd
        return given


def read_settings(config: "pytest.Config") -> Settings:
    """Read the options from pytest. Paths are relative to pytest's root folder."""
    option = config.getoption
    baseline = option("--assay-baseline")
    # The same order as in the commands, so that `assay show` finds the runs of a session.
    store: str | Path = config.rootpath / ".assay" / "assay.db"
    named = config.rootpath != config.invocation_params.dir
    if given := option("--assay-store"):
        store, named = given if "://" in given else config.rootpath / given, True
    elif where := os.environ.get("ASSAY_STORE"):
        store, named = where, False
    elif home := os.environ.get("ASSAY_HOME"):
        store, named = Path(home) / "assay.db", False
    return Settings(
        summary=config.rootpath / option("--assay-summary"),
        baseline=None if baseline is None else config.rootpath / baseline,
        tolerance=option("--assay-tolerance"),
        update=option("--assay-update-baseline"),
        store=store,
        store_must_be_named=named,
        max_samples=option("--assay-max-samples"),
        model=option("--assay-model"),
        fail_on_error=option("--assay-fail-on-error"),
        max_cost_usd=option("--assay-max-cost-usd"),
        replay=None
        if option("--assay-replay") is None
        else config.rootpath / option("--assay-replay"),
        rows=None if option("--assay-rows") is None else config.rootpath / option("--assay-rows"),
        html=None if option("--assay-html") is None else config.rootpath / option("--assay-html"),
    )


def check_settings(settings: Settings) -> None:
    """Raise `pytest.UsageError` for options that would fail the session later."""
    if settings.baseline is None and (settings.update or settings.tolerance is not None):
        raise pytest.UsageError(
            "--assay-tolerance and --assay-update-baseline need --assay-baseline"
        )
    tolerance = settings.tolerance
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance >= 0):
        raise pytest.UsageError(f"--assay-tolerance is {tolerance}, not a number of at least 0")
    if settings.max_samples is not None and settings.max_samples < 1:
        raise pytest.UsageError(
            f"--assay-max-samples is {settings.max_samples}, not a number of at least 1"
        )
    if settings.fail_on_error is not None or settings.max_cost_usd is not None:
        try:
            settings.limits()
        except AssayError as error:
            # The name of the setting becomes that of the option.
            problem = error.message.replace("_", "-", 2)
            raise pytest.UsageError(f"--assay-{problem}") from error
    if settings.replay is not None and not settings.replay.exists():
        raise pytest.UsageError(
            f"--assay-replay: {settings.replay} does not exist; record it with "
            "`assay runs record RUN -o FILE`"
        )
    if settings.rows is not None and not settings.rows.is_file():
        raise pytest.UsageError(f"--assay-rows: {settings.rows} does not exist")
    if settings.html is not None:
        _check_report(settings.html)
    for path in (settings.summary, settings.baseline):
        if path is None:
            continue
        try:
            check_file_target(path)
        except AssayError as error:
            raise pytest.UsageError(str(error)) from None
        if rows_path_of(path) == path:
            raise pytest.UsageError(
                f"{path}: a summary cannot end in .jsonl, the file of the samples beside it"
            )
    if settings.baseline is not None:
        _check_baseline(settings.baseline, settings)


def _check_report(html: Path) -> None:
    try:
        from assay.web import check_report_target

        check_report_target(html, force=True)
    except ModuleNotFoundError as error:
        missing = MissingExtra.build("view", by="--assay-html", package=error.name or "jinja2")
        raise pytest.UsageError(str(missing)) from None
    except AssayError as error:
        raise pytest.UsageError(f"--assay-html: {error}") from None


def _check_baseline(baseline: Path, settings: Settings) -> None:
    if rows_path_of(baseline).resolve() == rows_path_of(settings.summary).resolve():
        # The session would be compared with itself and always pass.
        raise pytest.UsageError("--assay-baseline and --assay-summary are the same file")
    if settings.update:
        return
    if not baseline.is_file():
        raise pytest.UsageError(
            f"the baseline {baseline} does not exist; write it with --assay-update-baseline"
        )
    try:
        read_summary_file(baseline)
        check_rows(baseline)
    except AssayError as error:
        raise pytest.UsageError(str(error)) from error
