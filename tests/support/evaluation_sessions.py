"""Whole pytest sessions, in this process or in one of their own, and what they leave behind."""

import gc
import json
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.types import Sample
from commands import build_environment, enter_folder, open_stream, read_stream

_EXAMPLES = Path(__file__).parents[2] / "examples"

HEAD = """
import asyncio, os, pytest
from assay import Endpoint, EvaluateResult, Message, Metric, Sample, evaluation_test
from assay.stats import GateRule

def rows(**replies):
    return [
        {"id": name, "question": f"{name}?", "answer": "yes", "reply": reply}
        for name, reply in replies.items()
    ]

def says(text):
    return Endpoint(provider="mock", model="fixed", extra_params={"text": text})

"""


@dataclass(frozen=True)
class Session:
    """A session that has ended."""

    folder: Path
    status: int
    output: str
    junit: Path

    @property
    def outcomes(self) -> dict[str, str]:
        """What became of each test, by its name."""
        return {case.get("name", ""): _outcome(case) for case in self._cases()}

    def properties(self, test: str) -> dict[str, str]:
        """What the JUnit report says of a test."""
        (case,) = [case for case in self._cases() if case.get("name") == test]
        return {each.get("name", ""): each.get("value", "") for each in case.iter("property")}

    def _cases(self) -> list[ElementTree.Element]:
        return list(ElementTree.parse(self.junit).getroot().iter("testcase"))

    @property
    def summary(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads((self.folder / ".assay" / "summary.json").read_text())
        return plain

    @property
    def tests(self) -> dict[str, dict[str, Any]]:
        """The tests of the summary, by what follows the file's name."""
        return {test["test"].partition("::")[2]: test for test in self.summary["tests"]}

    def rows(self, test: str) -> list[Sample]:
        """The samples of one test."""
        lines = (self.folder / ".assay" / "summary.jsonl").read_text("utf-8").splitlines()
        samples = [Sample.from_json(line) for line in lines]
        return [each for each in samples if str((each.model_extra or {})["test"]).endswith(test)]


def _outcome(case: ElementTree.Element) -> str:
    found = [tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None]
    return found[0] if found else "passed"


def write_tests(folder: Path, code: str, name: str = "test_evals.py") -> None:
    """Write a file of tests that has the usual imports at its top."""
    (folder / name).write_text(HEAD + textwrap.dedent(code), encoding="utf-8")


def call_pytest(folder: Path, *options: str, env: Mapping[str, str] | None = None) -> Session:
    """A whole session over the tests in `folder`, in this process: two seconds less than `run`."""
    output = open_stream()
    # A session collects garbage many times at its end. That of others would cost it seconds.
    gc.freeze()
    try:
        with (
            enter_folder(folder, env or {}),
            _forget_examples(),
            redirect_stdout(output),
            redirect_stderr(output),
        ):
            status = pytest.main(_choose_options(options))
    finally:
        gc.unfreeze()
    return Session(folder, int(status), read_stream(output), folder / "junit.xml")


@contextmanager
def _forget_examples() -> Iterator[None]:
    """Hide imported files of `examples/` from a session.

    A wheel contains some of them. In an editable installation pytest takes them for modules of our
    plugin, and warns if they are imported before it can rewrite their assertions.
    """
    examples = {
        name: module
        for name, module in sys.modules.items()
        if str(vars(module).get("__file__", "")).startswith(f"{_EXAMPLES}/")
    }
    for name in examples:
        del sys.modules[name]
    try:
        yield
    finally:
        sys.modules.update(examples)


def start(
    folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start a session in a process of its own, without waiting for it."""
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *_choose_options(options)],
        cwd=folder,
        env=build_environment(**(env or {})),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _choose_options(options: Sequence[str]) -> list[str]:
    quiet = ["-p", "no:cacheprovider", "-W", "error", "--junitxml=junit.xml"]
    # Plugins that are no part of what is tested, and cost more than the session itself.
    quiet += ["-p", "no:hypothesispytest", "-p", "no:anyio"]
    if not any(option.startswith("--asyncio-mode") for option in options):
        quiet += ["-p", "no:asyncio"]
    return [*quiet, *options]


def finished(process: "subprocess.Popen[str]", folder: Path) -> Session:
    output, _ = process.communicate(timeout=300)
    return Session(folder, process.returncode, output, folder / "junit.xml")


def run(folder: Path, *options: str, env: Mapping[str, str] | None = None) -> Session:
    """A whole session over the tests in `folder`, in a process of its own."""
    return finished(start(folder, *options, env=env), folder)
