"""A command in a child process: only a status that it reports is its status."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from assay.cli.supervision import supervise

def work():
    print("begun", flush=True)
    {work}

sys.exit(supervise(work))
"""


def run(work: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work=work)],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    ("work", "status"),
    [
        ("return 0", 0),
        ("return 1", 1),
        ("os._exit(0)", 3),
        ("os._exit(1)", 3),
        ("os._exit(130)", 130),
        ("os.kill(os.getpid(), 9)", 3),
        ("import atexit; atexit.register(os._exit, 0); return 1", 1),
    ],
)
def test_the_status_is_what_the_command_reports(work: str, status: int) -> None:
    found = run(work)

    assert (found.returncode, found.stdout) == (status, "begun\n")
    assert ("aborted" in found.stderr) is (status == 3)


def test_what_is_written_to_every_descriptor_is_no_status() -> None:
    work = """for descriptor in range(3, 20):
        try:
            os.write(descriptor, b"0")
        except OSError:
            pass
    os._exit(0)"""

    found = run(work)

    assert found.returncode == 3
    assert "ended with exit status 0" in found.stderr


def test_the_end_is_noticed_where_the_signal_for_it_is_ignored() -> None:
    program = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    found = subprocess.run(
        [sys.executable, "-c", program + PROGRAM.format(work="return 1")],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (found.returncode, found.stdout) == (1, "begun\n")


def test_a_process_that_is_left_behind_keeps_nobody_waiting() -> None:
    work = "pid = os.fork() or signal.pause(); print(pid, flush=True); return 0"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work=work)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    left = int(process.stdout.readline())

    assert process.wait(timeout=300) == 0
    os.kill(left, signal.SIGKILL)
    process.stdout.close()


def test_a_signal_to_the_command_reaches_the_child() -> None:
    work = (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); "
        "print(1, flush=True); signal.pause()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work=work)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.terminate()

    _, said = process.communicate(timeout=300)
    assert (process.returncode, "exit status 7" in said) == (3, True)


def test_the_child_does_not_outlive_the_command(tmp_path: Path) -> None:
    mark = tmp_path / "stopped"
    work = (
        f"signal.signal(signal.SIGTERM, lambda *_: (open({str(mark)!r}, 'w').close(), os._exit(0)))"
        "; print(1, flush=True); signal.pause()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work=work)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.readline()
    process.kill()
    process.wait(timeout=300)

    # The pipe ends when the last process that holds it has ended.
    assert process.stdout.read() == ""
    process.stdout.close()
    assert mark.exists()
