"""The exit statuses, and which error comes to which."""

from assay.errors import AssayError, DatasetOutOfReach, EndpointError, RunStopped, StoreError

EXIT_PASS = 0
EXIT_FAIL = 1
"""A legitimate no: a gate failed, a run got worse."""

EXIT_USAGE_ERROR = 2
"""Nothing was run."""

EXIT_INCONCLUSIVE = 3
"""Something was out of reach, the results could not be written, or the command broke off."""

EXIT_INTERRUPTED = 130


class InconclusiveError(AssayError):
    """Something that was under way could not be brought to its end."""


def choose_exit_status(error: AssayError) -> int:
    """What a command exits with when this error ends it."""
    out_of_reach = isinstance(
        error, InconclusiveError | DatasetOutOfReach | EndpointError | RunStopped | StoreError
    )
    return EXIT_INCONCLUSIVE if out_of_reach else EXIT_USAGE_ERROR
