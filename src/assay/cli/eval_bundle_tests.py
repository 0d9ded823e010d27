"""`assay eval --bundle` for a pytest session: pytest runs the bundled tests again."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assay.datasets import CODE, DATASET_FILE
from assay.store import Store

from .eval_bundle import FORWARDED_OPTIONS, TrustedBundle, resolve_store_location
from .exit_status import (
    EXIT_FAIL,
    EXIT_INCONCLUSIVE,
    EXIT_INTERRUPTED,
    EXIT_PASS,
    InconclusiveError,
)
from .output import format_field, print_report
from .resume import build_next_command

_EXIT_STATUS_BY_PYTEST_CODE = {0: EXIT_PASS, 1: EXIT_FAIL, 2: EXIT_INTERRUPTED}


def run_bundled_tests(trusted: TrustedBundle, args: Namespace) -> int:
    """Run the bundled tests on the bundled rows. The exit status is mapped from pytest's."""
    # A name of its own: the folder's own pytest sessions write the default summary.
    summary = Path.cwd() / ".assay" / f"bundle-{trusted.bundle.sha256[:8]}.json"
    store = resolve_store_location(args)
    with Store.open(store) as opened:
        baselines = trusted.import_results(opened)
    with TemporaryDirectory(prefix="assay-bundle-") as name:
        folder = Path(name).resolve()
        trusted.bundle.extract(folder)
        status = _run_pytest(trusted, args, folder, summary, store)
    tests = [run.test or "" for run in trusted.bundle.manifest.runs]
    _print_test_runs(args, summary, dict(zip(tests, baselines, strict=True)))
    return _EXIT_STATUS_BY_PYTEST_CODE.get(status, EXIT_INCONCLUSIVE)


def _run_pytest(
    trusted: TrustedBundle, args: Namespace, folder: Path, summary: Path, store: str | Path
) -> int:
    code = folder / CODE
    words = [f"--rootdir={code}", "-p", "no:cacheprovider", f"--assay-rows={folder / DATASET_FILE}"]
    words += [f"--assay-summary={summary}"]
    for name in FORWARDED_OPTIONS:
        value = getattr(args, name)
        if value is not None:
            # The plugin reads booleans in lower case.
            text = str(value).lower() if isinstance(value, bool) else str(value)
            words.append(f"--assay-{name.replace('_', '-')}={text}")
    imported = [str(code / each) for each in trusted.code.import_folders]
    kept = [each for each in [os.environ.get("PYTHONPATH")] if each]
    # An old summary must not pass for the new one when pytest fails to write it.
    summary.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--", *trusted.code.tests],
        cwd=code,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*imported, *kept]),
            # Not an argument: process lists would show a password in the URL.
            "ASSAY_STORE": str(store),
        },
        # stdout is for the report of this command.
        stdout=sys.stderr.fileno(),
        check=False,
    )
    return done.returncode


def _print_test_runs(args: Namespace, summary: Path, baselines: dict[str, str]) -> None:
    if not summary.is_file():
        raise InconclusiveError("pytest wrote no summary, so no evaluation of the bundle was run")
    tests: list[dict[str, Any]] = json.loads(summary.read_text("utf-8"))["tests"]
    compared = [
        (test["test"], baselines[test["test"]], test["run"])
        for test in tests
        if test["run"] is not None and test["test"] in baselines
    ]
    lines = [format_field("summary", summary), "next:"]
    lines += [f"  {build_next_command(args, 'compare', old, new)}" for _, old, new in compared]
    found = [{"test": test, "bundled": old, "run": new} for test, old, new in compared]
    print_report(args, lines, {"summary": str(summary), "tests": found})
