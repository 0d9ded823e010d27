"""Every exception assay raises on purpose.

    AssayError
    ├── ConfigError        the request is wrong: an argument, an option, a configuration file
    │   ├── ManifestError  an agent's manifest is wrong: all that is, with lines and paths
    │   └── MissingExtra   an optional dependency is needed and not installed
    ├── DatasetError       a dataset cannot be read
    │   ├── BadRow         one row of it is wrong; the rest may be fine
    │   └── DatasetOutOfReach  it could not be asked for; nothing is known about it
    ├── WireError          a foreign shape cannot be read, or cannot hold what it is given
    ├── EndpointError      a model could not be asked, or its answer not understood
    │   └── AccessDenied   the endpoint refuses the key: no call of this run can succeed
    ├── EnvironmentFault   an environment broke; never the agent's mistake
    ├── ScorerFault        a scorer gave something that is not a result
    ├── TokenError         tokens to train on cannot be had, or their mask not be trusted
    ├── TrainingError      a training cannot go on, or not from this checkpoint
    ├── RunStopped         a run ended early: nothing could succeed, or a limit of it was reached
    └── StoreError         results cannot be written or read back

Constructing a model from wrong values raises pydantic's own `ValidationError`.
"""


class AssayError(Exception):
    """Something a user can act on: what happened, where, and what to do about it."""

    def __init__(self, message: str, *, where: str | None = None, hint: str | None = None) -> None:
        self.message = message
        self.where = where
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  hint: {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        # The keyword-only arguments would be lost on the way back from another process.
        return (_rebuild, (type(self), self.message, self.where, self.hint))


def _rebuild(
    kind: type[AssayError], message: str, where: str | None, hint: str | None
) -> AssayError:
    return kind(message, where=where, hint=hint)


class ConfigError(AssayError):
    """The request itself is wrong; nothing was run."""


class ManifestError(ConfigError):
    """An agent's manifest cannot be read, or says what it may not say."""


DISTRIBUTION = "assay-eval"
"""The name of this package on the package index. Its import name and command are `assay`."""


def install_command(extra: str) -> str:
    """The command that installs an optional part of assay."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class MissingExtra(ConfigError):
    """An optional dependency is needed and not installed."""

    @classmethod
    def needed(
        cls, extra: str, *, by: str, package: str, then: str | None = None
    ) -> "MissingExtra":
        """The error whose hint installs an extra, and `then` what no extra can bring."""
        commands = [install_command(extra), *([] if then is None else [then])]
        return cls(f"{by} needs the package `{package}`", hint=" && ".join(commands))


class DatasetError(AssayError):
    """A dataset cannot be read."""


class BadRow(DatasetError):
    """One row of a dataset is wrong."""


class DatasetOutOfReach(DatasetError):
    """A dataset could not be asked for: it may be there, and it may be sound."""


class WireError(AssayError):
    """A foreign shape cannot be read, or cannot hold what it was given."""


class EndpointError(AssayError):
    """A model could not be asked, or its answer could not be understood."""

    def __init__(
        self,
        message: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        status: int | None = None,
        retryable: bool = True,
    ) -> None:
        super().__init__(message, where=where, hint=hint)
        self.status = status
        self.retryable = retryable

    def __reduce__(self) -> tuple[object, ...]:
        rebuild, arguments = super().__reduce__()
        return (rebuild, arguments, {"status": self.status, "retryable": self.retryable})


class AccessDenied(EndpointError):
    """The endpoint refuses the key: no call of this run can succeed."""


class EnvironmentFault(AssayError):
    """An environment broke. The agent's mistakes are answered in words instead."""


class ScorerFault(AssayError):
    """A scorer returned something that is not a result."""


class TokenError(AssayError):
    """Tokens to train on cannot be had, or it cannot be proven which of them were sampled."""


class TrainingError(AssayError):
    """A training cannot go on, or not from where it was asked to. Its checkpoints are kept."""


class RunStopped(AssayError):
    """A run ended early: nothing could succeed, or one of its limits was reached.

    What was recorded is kept, and the run can be resumed.
    """

    run_id: str | None = None
    """The run; None before it has begun."""


class StoreError(AssayError):
    """Results cannot be written or read back."""
