"""The exit statuses, and which error comes to which."""

from assay.errors import AssayError, DatasetOutOfReach, EndpointError, RunStopped, StoreError

YES = 0
NO = 1
"""A legitimate no: a gate failed, a run got worse."""

WRONG_REQUEST = 2
"""Nothing was run."""

COULD_NOT_TELL = 3
"""Something was out of reach, the results could not be written, or the command broke off."""

INTERRUPTED = 130


class CouldNotTell(AssayError):
    """Something that was under way could not be brought to its end."""


def status_of(error: AssayError) -> int:
    """What a command exits with when this error ends it."""
    out_of_reach = isinstance(
        error, CouldNotTell | DatasetOutOfReach | EndpointError | RunStopped | StoreError
    )
    return COULD_NOT_TELL if out_of_reach else WRONG_REQUEST
