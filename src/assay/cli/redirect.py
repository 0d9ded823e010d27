"""Output of user code goes to stderr: stdout is for the result of a command."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from typing import TextIO

# By number: child processes inherit the descriptor, not `sys.stdout`.
_STDOUT_FD = 1


@contextmanager
def redirect_output_to_stderr() -> Iterator[None]:
    """Redirect stdout to stderr inside the context, for child processes as well."""
    with ExitStack() as restored:
        if _are_process_streams(sys.stdout, sys.stderr):
            kept = os.dup(_STDOUT_FD)
            restored.callback(os.close, kept)
            restored.callback(os.dup2, kept, _STDOUT_FD)
            # Flushed at both switches: buffered text belongs to the stream it was printed to.
            sys.stdout.flush()
            restored.callback(sys.stdout.flush)
            os.dup2(sys.stderr.fileno(), _STDOUT_FD)
        restored.enter_context(redirect_stdout(sys.stderr))
        yield


def _are_process_streams(stdout: TextIO | None, stderr: TextIO | None) -> bool:
    # False for closed and replaced streams: after stdout was closed, descriptor 1 may be any file.
    if stdout is None or stderr is None:
        return False
    try:
        return stdout.fileno() == _STDOUT_FD and stderr.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False
