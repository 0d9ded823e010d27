"""What the user's own code prints is no result of a command: it goes to stderr."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TextIO

_STDOUT_FD = 1


@contextmanager
def redirect_output_to_stderr() -> Iterator[None]:
    """Inside of it stdout is stderr, for child processes as well."""
    with ExitStack() as restored:
        if _are_process_streams(sys.stdout, sys.stderr):
            kept = os.dup(_STDOUT_FD)
            restored.callback(os.close, kept)
            restored.callback(os.dup2, kept, _STDOUT_FD)
            # What is buffered goes to where stdout led when it was printed, here and at the end.
            sys.stdout.flush()
            restored.callback(sys.stdout.flush)
            os.dup2(sys.stderr.fileno(), _STDOUT_FD)
        restored.enter_context(redirect_stdout(sys.stderr))
        yield


def _are_process_streams(stdout: TextIO | None, stderr: TextIO | None) -> bool:
    """Whether both lead out of the process, unlike streams that are closed or replaced.

    Where stdout was closed, its number may be that of any other file.
    """
    if stdout is None or stderr is None:
        return False
    try:
        return stdout.fileno() == _STDOUT_FD and stderr.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False
