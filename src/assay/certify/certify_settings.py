"""What a certification is asked to do beside what the manifest says."""

from collections.abc import Callable
from dataclasses import dataclass, field

from assay.datasets import FetchRules
from assay.errors import ConfigError
from assay.types import Endpoint, Sample

Runner = str | Endpoint | Callable[[Sample], object]
"""Who is tested instead of the manifest's own model on its usual endpoint.

A function that takes the sample, `module:function`, `http://host/v1`, `cmd:...`; an `Endpoint` or
`provider:model[@url]` is the manifest's own agent on that endpoint.
"""


@dataclass(frozen=True, kw_only=True)
class CertifySettings:
    """How an agent is certified."""

    runner: Runner | None = None
    tools: str | None = None
    """A module with a function for each inline tool of the manifest's own agent."""

    judge: Endpoint | None = None
    """Where the judge is. Another model than the manifest's makes the run a rehearsal."""

    dataset: str | None = None
    """Another dataset than the manifest's: a rehearsal."""

    limit: int | None = None
    """Only so many samples: a rehearsal."""

    seed: int | None = None
    timeout_s: float = 120.0
    """An agent that takes longer to answer has failed."""

    concurrency: int = 8
    """Samples in progress at once: while one is judged, the agent is asked for the next."""

    latency_concurrency: int = 1
    """Calls of the agent at once, where there is a limit on its times."""

    warmup: int | None = None
    """Calls before the first that counts. None: one where there is a limit on times."""

    fetch: FetchRules = field(default_factory=FetchRules)
    """Where the golden dataset may be fetched from."""

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("concurrency", 1), ("latency_concurrency", 1)):
            self._check_minimum(name, least)
        self._check_minimum("warmup", 0)
        if not 0 < self.timeout_s < float("inf"):
            raise ConfigError(
                f"timeout_s={self.timeout_s!r} is not a number of seconds above 0",
                where="CertifySettings",
            )

    def _check_minimum(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if value is not None and (type(value) is not int or value < least):
            raise ConfigError(
                f"{name}={value!r} is not a whole number of at least {least}",
                where="CertifySettings",
            )
