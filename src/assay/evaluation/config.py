"""What to run: the one description that evaluation, resuming and the commands share."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.endpoints import ClientSettings
from assay.errors import ConfigError
from assay.models import Endpoint, Message, Sample, stable_id
from assay.rollout import BasicEnvironment, Environment, Limits, environment_by_name
from assay.scoring import ScoreFunction

PrepareMessages = Callable[[Sample], Sequence[Message | dict[str, Any]]]
EnvironmentFactory = Callable[[Sample], Environment]


@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """How samples are rolled out and scored."""

    endpoint: Endpoint | None = None
    """None: nothing is rolled out; the samples are scored as they are."""

    score_fn: ScoreFunction | None = None
    """None: the environment's own rewards are the score."""

    prepare_messages: PrepareMessages | None = None
    """What the agent is asked. None: the sample's own messages."""

    environment_factory: EnvironmentFactory | str | None = None
    """Makes a fresh environment for each rollout; a name such as `gym:FrozenLake-v1` will do."""

    name: str = "eval"
    limits: Limits = field(default_factory=Limits)
    client: ClientSettings = field(default_factory=ClientSettings)
    repeats: int = 1
    """Rollouts of each sample."""

    concurrency: int = 100
    """Samples in progress at once. The client may hold their requests back."""

    sample_timeout_s: float | None = None
    """A sample that takes longer has failed."""

    seed: int | None = None
    """Each rollout gets a seed of its own made from this, unless its row has a `seed`."""

    max_samples: int | None = None

    def __post_init__(self) -> None:
        if self.score_fn is None and self.environment_factory is None:
            raise ConfigError(
                "neither `score_fn` nor `environment_factory` is given: nothing gives a score",
                where="EvalConfig",
            )
        for name in ("score_fn", "prepare_messages", "environment_factory"):
            value = getattr(self, name)
            if value is not None and not (name == "environment_factory" and isinstance(value, str)):
                _check_takes_a_sample(name, value)
        for name in ("repeats", "concurrency"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r} is not a number above 0", where="EvalConfig")
        if self.sample_timeout_s is not None and not self.sample_timeout_s > 0:
            raise ConfigError(
                f"sample_timeout_s={self.sample_timeout_s!r} is not above 0", where="EvalConfig"
            )
        if isinstance(self.environment_factory, str):
            environment_by_name(self.environment_factory)

    def make_environment(self, sample: Sample) -> Environment:
        factory = self.environment_factory
        if factory is None:
            return BasicEnvironment()
        if isinstance(factory, str):
            return environment_by_name(factory)()
        return factory(sample)

    def seed_of(self, sample: Sample, repeat: int) -> int | None:
        """The seed of one rollout: the row's own (0 included), else one made from `seed`."""
        own = sample.input.get("seed")
        if isinstance(own, int) and not isinstance(own, bool):
            return own + repeat
        if self.seed is None:
            return None
        text = f"{self.seed}:{sample.id}:{repeat}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) >> 1

    def describe(self) -> dict[str, Any]:
        """Everything that decides what a result means, as plain values without secrets.

        Two runs with equal descriptions may share results. How fast and how often one asks does
        not belong here.
        """
        return {
            "endpoint": None if self.endpoint is None else _asked_how(self.endpoint),
            "score_fn": _described(self.score_fn),
            "prepare_messages": _described(self.prepare_messages),
            "environment_factory": _described(self.environment_factory),
            "limits": self.limits.model_dump(),
            "seed": self.seed,
            "sample_timeout_s": self.sample_timeout_s,
        }

    def fingerprint(self) -> str:
        return stable_id(self.describe())


def _check_takes_a_sample(name: str, function: object) -> None:
    if not callable(function):
        raise ConfigError(f"{name}={function!r} cannot be called", where="EvalConfig")
    try:
        inspect.signature(function).bind(object())
    except ValueError:
        return  # built-in functions do not always tell their signature
    except TypeError as error:
        raise ConfigError(
            f"`{name}` cannot be called with a sample: {error}",
            where="EvalConfig",
            hint="it takes one argument, the Sample",
        ) from None


def _asked_how(endpoint: Endpoint) -> dict[str, Any]:
    plain = endpoint.to_dict()
    for patience in ("timeout_s", "max_retries", "withheld"):
        plain.pop(patience, None)
    if endpoint.provider == "mock":
        # A script is what such a model is. It holds no secret, but is not written either.
        plain["script"] = stable_id(endpoint.extra_params)
    return plain


def _described(value: object) -> str | None:
    """A callable by its name and a digest of its source, where that can be read."""
    if value is None or isinstance(value, str):
        return value
    function: Any = value if hasattr(value, "__qualname__") else type(value)
    name = f"{function.__module__}.{function.__qualname__}"
    try:
        source = inspect.getsource(function)
    except (OSError, TypeError):
        return name
    return f"{name} {hashlib.sha256(source.encode()).hexdigest()[:12]}"
