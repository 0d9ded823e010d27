"""Where the output of the user's own code goes."""

import os
import subprocess
import sys

import pytest

from assay.cli.redirect import redirect_output_to_stderr

SCRIPT = """
import os, subprocess, sys
from assay.cli.redirect import redirect_output_to_stderr

print("before")
with redirect_output_to_stderr():
    print("printed")
    subprocess.run(["echo", "by a child"])
    os.write(1, b"by number\\n")
    sys.__stdout__.write("to the stream itself\\n")
print("after")
"""
FAILING = """
from assay.cli.redirect import redirect_output_to_stderr

try:
    with redirect_output_to_stderr():
        raise KeyError
except KeyError:
    print("restored")
"""
SHORT = """
from assay.cli.redirect import redirect_output_to_stderr

with redirect_output_to_stderr():
    print("inside")
print("outside")
"""


def run(script: str, redirection: str = "") -> "subprocess.CompletedProcess[str]":
    shell = ["sh", "-c", f'exec "$0" -c "$1" {redirection}', sys.executable, script]
    return subprocess.run(shell, capture_output=True, text=True, timeout=300)


def test_nothing_that_is_written_inside_reaches_stdout() -> None:
    ended = run(SCRIPT)

    assert (ended.returncode, ended.stdout) == (0, "before\nafter\n")
    assert sorted(ended.stderr.splitlines()) == [
        "by a child",
        "by number",
        "printed",
        "to the stream itself",
    ]


def test_stdout_is_restored_after_an_error() -> None:
    ended = run(FAILING)

    assert (ended.stdout, ended.stderr) == ("restored\n", "")


@pytest.mark.parametrize(
    ("redirection", "stdout", "stderr"), [("1>&-", "", "inside\n"), ("2>&-", "outside\n", "")]
)
def test_a_stream_may_be_closed(redirection: str, stdout: str, stderr: str) -> None:
    ended = run(SHORT, redirection)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, stdout, stderr)


def test_streams_in_memory_leave_the_descriptors_alone(capsys: pytest.CaptureFixture[str]) -> None:
    before = os.fstat(1)

    with redirect_output_to_stderr():
        print("inside")
        assert os.fstat(1) == before
    print("outside")

    assert capsys.readouterr() == ("outside\n", "inside\n")
