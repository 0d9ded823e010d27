"""Settings of a certification that are not part of the manifest."""

from collections.abc import Callable
from dataclasses import dataclass, field

from assay.agents import Agent
from assay.datasets import FetchRules
from assay.errors import ConfigError
from assay.providers import EndpointLike
from assay.runner import EngineRef, read_engine
from assay.types import Endpoint, Sample

Runner = str | Endpoint | Agent | Callable[[Sample], object]
"""The agent to test instead of the manifest's model on its default endpoint.

A function that takes the sample, `module:function`, `http://host/v1`, `cmd:...`, a coding agent
such as `claude-code`; an `Endpoint` or `provider:model[@url]` runs the manifest's own agent on that
endpoint.
"""


@dataclass(frozen=True, kw_only=True)
class CertifySettings:
    """Settings of `certify`."""

    runner: Runner | None = None
    tools: str | None = None
    """A module with a function for each inline tool of the manifest's own agent."""

    judge: EndpointLike | None = None
    """Endpoint or model string of the judge. Another model than the manifest's is a deviation."""

    dataset: str | None = None
    """A dataset to use instead of the manifest's, which is a deviation."""

    max_samples: int | None = None
    """Run only this many samples, which is a deviation."""

    seed: int | None = None
    timeout_s: float = 120.0
    """Time limit of one call of the agent. A call that takes longer has failed."""

    concurrency: int = 8
    """Samples in progress at once: the agent is called while earlier answers are judged."""

    latency_concurrency: int = 1
    """Concurrent calls of the agent when its latency is a criterion."""

    warmup: int | None = None
    """Calls before the first measured one. None: one when the latency is a criterion."""

    engine: EngineRef | None = None
    """Where the agent is called and its answers are graded: `"ray"`, or `RaySettings` with the
    address of a cluster, on the workers of Ray. None: in this process."""

    fetch: FetchRules = field(default_factory=FetchRules)
    """Rules for fetching the golden dataset."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "engine", read_engine(self.engine, where="CertifySettings"))
        minimums = {"max_samples": 1, "concurrency": 1, "latency_concurrency": 1, "warmup": 0}
        for name, least in minimums.items():
            value = getattr(self, name)
            # `type`, not `isinstance`: True is an integer as well.
            if value is not None and (type(value) is not int or value < least):
                raise ConfigError(
                    f"{name}={value!r} is not a whole number of at least {least}",
                    where="CertifySettings",
                )
        if not 0 < self.timeout_s < float("inf"):
            raise ConfigError(
                f"timeout_s={self.timeout_s!r} is not a number of seconds above 0",
                where="CertifySettings",
            )
