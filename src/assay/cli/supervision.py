"""A command in a child process, so that user code cannot end it and look like success.

An agent, a metric or a tool may call `os._exit(0)`, replace the process, or kill it. The parent
runs none of that code: it waits for the status that the finished command reports.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from .exit_status import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED

_FORWARDED_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def supervise(work: Callable[[], int]) -> int:
    """Run `work` in a child process and return the status that it reports.

    A child that ends without a report counts as `EXIT_INCONCLUSIVE`, whatever its exit status.
    Without `os.fork`, `work` runs in this process.
    """
    if not hasattr(os, "fork"):
        return work()
    for stream in (sys.stdout, sys.stderr):
        # Buffered text would be written twice, by the parent and by the child.
        if stream is not None:
            stream.flush()
    finished, report = os.pipe()
    # Random, so that code which writes to every descriptor cannot forge a status.
    seal = os.urandom(16)
    # Its end in the parent closes when the parent ends, also by SIGKILL.
    watched, held = os.pipe()
    # A service manager may have set it to ignored, and then the end of the child is not signalled.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with _block_signals() as before:
        child = os.fork()
        if child == 0:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(finished)
            os.close(held)
            threading.Thread(target=_stop_with_parent, args=[watched], daemon=True).start()
            ending = work()
            os.write(report, seal + bytes([ending]))
            os.close(report)
            sys.exit(ending)
        os.close(report)
        os.close(watched)
        ended = _wait_for_child(child)
    os.close(held)
    # Non-blocking: processes that the agent left behind may still hold the other end open.
    os.set_blocking(finished, False)
    with suppress(BlockingIOError), os.fdopen(finished, "rb", buffering=0) as reader:
        _, is_sealed, status = (reader.read(65536) or b"").rpartition(seal)
        if is_sealed:
            return status[0]
    return _report_abort(ended)


def _stop_with_parent(watched: int) -> None:
    # The parent never writes to this pipe: the read returns when the parent has ended.
    with suppress(OSError):
        os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def _block_signals() -> Iterator[set[signal.Signals | int]]:
    """Block signals inside the context; yields the previous mask."""
    kept = {*_FORWARDED_SIGNALS, signal.SIGCHLD}
    before: set[signal.Signals | int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, kept))
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _wait_for_child(child: int) -> int:
    """Forward signals to the child until it ends; return its wait status."""
    while True:
        if hasattr(signal, "sigwaitinfo"):
            info = signal.sigwaitinfo({*_FORWARDED_SIGNALS, signal.SIGCHLD})
            # A positive code is the kernel's: a terminal signals the whole process group.
            number, by_terminal = info.si_signo, info.si_code > 0
        else:
            number, by_terminal = signal.sigwait({*_FORWARDED_SIGNALS, signal.SIGCHLD}), False
        if number == signal.SIGCHLD:
            pid, ended = os.waitpid(child, os.WNOHANG)
            if pid:
                return ended
        elif not by_terminal:
            # Not forwarded from a terminal: the child would count Ctrl-C twice.
            with suppress(ProcessLookupError):
                os.kill(child, number)


def _report_abort(ended: int) -> int:
    code = os.waitstatus_to_exitcode(ended)
    if code == EXIT_INTERRUPTED:
        return code  # the child exited after a third signal, and printed the hint itself
    cause = f"with exit status {code}" if code >= 0 else f"by signal {-code}"
    # Imported here: the parent process only waits.
    from .output import print_message

    print_message(
        f"aborted: the process ended {cause} before the command had finished; the agent, a metric "
        "or a tool ended it\n"
        "  hint: no certificate was issued; recorded results are kept, see `assay runs`"
    )
    return EXIT_INCONCLUSIVE
