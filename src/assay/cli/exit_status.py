"""The exit statuses of commands, and the status of each error."""

from assay.errors import AssayError, DatasetOutOfReach, EndpointError, RunStopped, StoreError

EXIT_PASS = 0
EXIT_FAIL = 1
"""A gate failed, or a run got worse."""

EXIT_USAGE_ERROR = 2
"""The command line or a configuration is wrong; nothing was run."""

EXIT_INCONCLUSIVE = 3
"""A resource is unreachable, results cannot be written, or the command was aborted."""

EXIT_INTERRUPTED = 130


class InconclusiveError(AssayError):
    """A command was aborted after it had started: its outcome is unknown."""


def choose_exit_status(error: AssayError) -> int:
    """Return the exit status of a command that this error ends."""
    # A retry can change these; it cannot change a usage error.
    inconclusive = isinstance(
        error, InconclusiveError | DatasetOutOfReach | EndpointError | RunStopped | StoreError
    )
    return EXIT_INCONCLUSIVE if inconclusive else EXIT_USAGE_ERROR
