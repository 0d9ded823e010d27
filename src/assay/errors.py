"""The exceptions that assay raises on purpose.

    AssayError
    ├── ConfigError        the request is wrong: an argument, an option, a configuration file
    │   ├── ManifestError  an agent's manifest is invalid; lists every problem with line and path
    │   └── MissingExtra   an optional dependency is needed and not installed
    ├── DatasetError       a dataset cannot be read
    │   ├── BadRow         one row is invalid; the rest may be fine
    │   └── DatasetOutOfReach  the dataset could not be requested; it may exist and be valid
    ├── WireError          a foreign format cannot be read, or cannot represent a value
    ├── EndpointError      a model call failed, or its answer was not understood
    │   └── AccessDenied   the endpoint refuses the key: no call of this run can succeed
    ├── GatewayFault       the recording gateway broke; never the agent's mistake
    ├── ReplayDifference   a call is not in the recording that is replayed: its answer is unknown
    ├── EnvironmentFault   an environment broke; never the agent's mistake
    ├── ScorerFault        a scorer returned something that is not a result
    ├── TokenError         training tokens unavailable or loss mask unreliable
    ├── TrainingError      training cannot continue, or not from this checkpoint
    ├── RunStopped         a run was aborted: nothing could succeed, or it hit a limit
    └── StoreError         results cannot be written or read back

Constructing a model from wrong values raises pydantic's own `ValidationError`.
"""


class AssayError(Exception):
    """An error that a user can act on: the problem, its location and a hint."""

    run_id: str | None = None
    """The run that the error ended, which can be resumed. None outside of a run."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling calls the class with positional arguments only, which would drop the
        # keyword-only ones when an error returns from a worker process.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(
    kind: type[AssayError], message: str, where: str | None, hint: str | None
) -> AssayError:
    return kind(message, where=where, hint=hint)


class ConfigError(AssayError):
    """The request itself is wrong; nothing was run."""


class ManifestError(ConfigError):
    """An agent's manifest cannot be read or is invalid."""


# The name on the package index; the import name and the command are `assay`.
DISTRIBUTION = "assay-eval"


def install_command(extra: str) -> str:
    """Return the command that installs an optional extra of assay."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    @classmethod
    def build(cls, extra: str, *, by: str, package: str, then: str | None = None) -> "MissingExtra":
        """Return the error whose hint installs an extra, then runs the command `then`."""
        commands = [install_command(extra), *([] if then is None else [then])]
        return cls(f"{by} needs the package `{package}`", hint=" && ".join(commands))


class DatasetError(AssayError):
    """A dataset cannot be read."""


class BadRow(DatasetError):
    """One row of a dataset is wrong."""


class DatasetOutOfReach(DatasetError):
    """A dataset could not be requested; it may exist and be valid."""


class WireError(AssayError):
    """A foreign format cannot be read, or cannot represent a value."""


class EndpointError(AssayError):
    """A model call failed, or its answer could not be understood."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        retryable: bool = True,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.status = status
        self.retryable = retryable
        self.retry_after_s = retry_after_s

    def __reduce__(self) -> tuple[object, ...]:
        # The third element is the state that pickle adds to `__dict__` after the rebuild.
        rebuild, arguments = super().__reduce__()
        state = {name: self.__dict__[name] for name in ("status", "retryable", "retry_after_s")}
        return (rebuild, arguments, state)


class AccessDenied(EndpointError):
    """The endpoint refuses the key: no call of this run can succeed."""


class GatewayFault(AssayError):
    """The gateway that records an agent's calls failed."""


class ReplayDifference(AssayError):
    """A call differs from the recording that is replayed, so that its answer is unknown."""


class EnvironmentFault(AssayError):
    """An environment failed. Mistakes of the agent are answered with text instead."""


class ScorerFault(AssayError):
    """A scorer returned something that is not a result."""


class TokenError(AssayError):
    """Training tokens are unavailable, or their loss mask is unreliable."""


class TrainingError(AssayError):
    """Training cannot continue, or not from this checkpoint. Checkpoints are kept."""


class RunStopped(AssayError):
    """A run was aborted: nothing could succeed, or one of its limits was reached.

    Recorded results are kept, and the run can be resumed.
    """


class StoreError(AssayError):
    """Results cannot be written or read back."""
