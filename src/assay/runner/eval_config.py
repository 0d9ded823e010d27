"""The configuration of an evaluation, shared by Python, pytest and the commands."""

import inspect
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.agents import (
    Agent,
    AgentRef,
    Description,
    Limits,
    describe_callable,
    resolve_agent,
)
from assay.datasets import PromptTemplate
from assay.environments import (
    Environment,
    EnvironmentLike,
    accept_environment_alias,
    build_environment_factory,
    find_environment_plugin,
)
from assay.errors import ConfigError
from assay.providers import ClientSettings, EndpointLike, ModelClient, to_endpoint
from assay.scorers import (
    CombinedScorer,
    NamedScorer,
    RegisteredMetric,
    ScoreFunction,
    require_metric,
)
from assay.stats import Direction, check_bounds
from assay.types import (
    AgentSession,
    Endpoint,
    Message,
    Sample,
    Trajectory,
    describe_endpoint,
    stable_id,
)

from .engines.ray_settings import EngineRef, RaySettings, read_engine
from .replay_source import describe_replay
from .run_limits import RunLimits, refuse_shared_limits
from .seeds import derive_environment_seed, derive_sampling_seed

if TYPE_CHECKING:
    from assay.agents import TaskCommand
    from assay.gateway import Recording

PrepareMessages = Callable[[Sample], Sequence[Message | dict[str, Any]]]
SampleRollout = Callable[[ModelClient | None, Sample], Awaitable[Trajectory]]

_ENDPOINT_FOLLOWS: ContextVar[bool] = ContextVar("_ENDPOINT_FOLLOWS", default=False)


# Each sample in progress is a task of the event loop, and a queue place of the store.
_MAX_CONCURRENCY = 100_000


@contextmanager
def expect_endpoint(expected: bool = True) -> Iterator[None]:
    """Accept configurations whose endpoint is set later, such as by `--model`."""
    token = _ENDPOINT_FOLLOWS.set(expected)
    try:
        yield
    finally:
        _ENDPOINT_FOLLOWS.reset(token)


class _EndpointField:
    """A field that accepts an endpoint or a model string, and returns the endpoint."""

    def __get__(self, config: "EvalConfig | None", kind: type | None = None) -> Endpoint | None:
        # `dataclass` reads the default of the field from the class itself.
        return None if config is None else config.__dict__.get("_endpoint")

    def __set__(self, config: "EvalConfig", given: EndpointLike | None) -> None:
        found = None if given is None else to_endpoint(given, where="EvalConfig")
        config.__dict__["_endpoint"] = found


class _AgentField:
    """A field that accepts whatever names an agent, and returns the agent or None."""

    def __get__(self, config: "EvalConfig | None", kind: type | None = None) -> Agent | None:
        return None if config is None else config.__dict__.get("_agent")

    def __set__(self, config: "EvalConfig", given: AgentRef | None) -> None:
        found = None if given is None else resolve_agent(given, where="EvalConfig")
        if isinstance(found, Endpoint):
            config.__dict__["_agent_endpoint"], found = found, None
        config.__dict__["_agent"] = found


class _EngineField:
    """A field that accepts `"ray"` or `RaySettings`, and returns the settings or None."""

    def __get__(self, config: "EvalConfig | None", kind: type | None = None) -> RaySettings | None:
        return None if config is None else config.__dict__.get("_engine")

    def __set__(self, config: "EvalConfig", given: EngineRef | None) -> None:
        config.__dict__["_engine"] = read_engine(given, where="EvalConfig")


@accept_environment_alias("environment_factory")
@dataclass(frozen=True, kw_only=True)
class EvalConfig:
    """How samples are rolled out and scored."""

    agent: _AgentField = _AgentField()
    """What answers the samples: an `Agent`, a function that takes the sample, a model such as
    `openai:gpt-5`, a command `cmd:...`, a service `http://...`, code as `FILE.py:function`, or a
    coding agent: `claude-code`, `codex`, `opencode`, `pi`. With neither `agent` nor `endpoint`,
    samples are scored without a rollout."""

    endpoint: _EndpointField = _EndpointField()
    """An `Endpoint`, or a model string such as `openai:gpt-5`: the short form of a model agent.
    Beside another agent it is the model that the agent calls through its context."""

    workspace: str | Path | None = None
    """A folder of which the agent gets a copy for each sample, with the row's `files` written over
    it; of a Git repository the files that it does not ignore."""

    setup: str | None = None
    """A command that prepares the workspace of a sample, without a shell. `{field}` is a field of
    the row."""

    check: str | None = None
    """A command that runs in the workspace after the agent. Status 0 is the score 1, any other
    one 0; the row's `check_files` are written before it. It is the score unless there is a
    `score_fn`, for which it is `sample.trajectory.evaluation_result`."""

    score_fn: NamedScorer | Sequence[NamedScorer | tuple[NamedScorer, float]] | None = None
    """A function that takes the sample, or the name of a metric such as `exact_answer`. High scores
    are good, unless a `RegisteredMetric` states another direction. None: the environment's own
    rewards are the score. In a list each scorer is a metric, with its weight if it is a pair."""

    score_failures: bool = False
    """Score the samples whose agent failed, now or in a recorded run, too: `sample.failure` is then
    set. False: they are failed samples, which a resumed run repeats."""

    prepare_messages: PrepareMessages | None = None
    """Returns the prompt of a sample, such as a `PromptTemplate` of `read_prompt`. None: the
    sample's own messages. Needs an agent."""

    environment: EnvironmentLike | None = None
    """Creates a new environment for each rollout: a factory that takes the sample, an environment
    class whose constructor needs no argument, or a name such as `gym:FrozenLake-v1`."""

    rollout_fn: SampleRollout | None = None
    """Replaces the agent loop: takes the client of `endpoint` (None without one) and the sample,
    and returns the trajectory. The environment is not used."""

    name: str = "eval"
    limits: Limits = field(default_factory=Limits)
    client: ClientSettings = field(default_factory=ClientSettings)
    repeats: int = 1
    """Rollouts of each sample."""

    concurrency: int = 100
    """Samples in progress at once. The client may queue their requests."""

    timeout_s: float | None = None
    """A sample that takes longer fails; time in the request queue does not count."""

    seed: int | None = None
    """Seed from which every rollout derives its own. A row's own `seed` overrides it for the
    environment, in every repeat."""

    max_samples: int | None = None
    bounds: tuple[float, float] | None = None
    """The lowest and highest score possible, where scores are not within 0..1. A score outside of
    them is a failure of the scorer."""

    fail_on_error: bool | int | float | None = None
    """Stop the run when more samples fail than this: True at the first failure, a whole number
    after more than that many, a share between 0 and 1 after more than that part of all samples.
    None and False: failed samples never stop a run that can succeed."""

    max_cost_usd: float | None = None
    """Start no further sample once the model calls of the run have cost this much, failed samples
    and resumed parts included. `limits.max_cost_usd` is the limit of a single rollout."""

    run_limits: RunLimits | None = None
    """Turns, tokens, cost and time of the whole run. At a limit, the model calls of all agents are
    refused; samples that were cut short are repeated when the run is resumed."""

    session: AgentSession | None = None
    """A stored conversation that every rollout continues: its messages come before the sample's.
    Without an `endpoint` its model is used."""

    save_sessions: bool = False
    """Store each rollout as a session too, under `RUN/SAMPLE`, so that it can be continued."""

    replay: "str | Path | Recording | None" = None
    """A recording that answers the calls of the agent instead of the model: a file of `assay runs
    record`, or the id of a run. A call that is not in it makes its sample inconclusive."""

    replay_missing: Literal["fail", "live"] = "fail"
    """`live`: the model answers the calls that are not in the recording."""

    engine: _EngineField = _EngineField()
    """Where samples are executed: None in this process; `"ray"`, or `RaySettings` with the address
    of a cluster, on the workers of Ray."""

    def __post_init__(self) -> None:
        self._check_kinds()
        self._merge_agent()
        if self.endpoint is None and self.session is not None and self.agent is None:
            object.__setattr__(self, "endpoint", self.session.endpoint)
        self._check_numbers()
        self._check_workspace()
        if self.score_fn is None and self.environment is None and self.check is None:
            raise ConfigError(
                "neither `score_fn` nor `environment` is set, so samples cannot be scored",
                where="EvalConfig",
            )
        if isinstance(self.score_fn, str):
            metric = require_metric(self.score_fn, where="EvalConfig: score_fn")
            object.__setattr__(self, "score_fn", metric)
        if isinstance(self.score_fn, list | tuple):
            object.__setattr__(self, "score_fn", CombinedScorer(self.score_fn))
        for name in ("score_fn", "prepare_messages"):
            value = getattr(self, name)
            if value is not None:
                _check_takes_sample(name, value)
        _ = self.make_environment  # refuses an unknown name and a wrong signature
        if self.prepare_messages is not None and not (self.rolls_out or _ENDPOINT_FOLLOWS.get()):
            raise ConfigError(
                "`prepare_messages` has no effect without an agent",
                where="EvalConfig",
                hint="set `agent` or `endpoint`, or remove `prepare_messages`",
            )
        if self.engine is not None:
            refuse_shared_limits(self.run_limits, where="EvalConfig")
        if self.engine is not None and self.replay is not None:
            raise ConfigError(
                "`engine` and `replay` cannot be combined: recorded calls are not sent to workers",
                where="EvalConfig",
                hint="replay the run in this process, without `engine`",
            )
        if self.rollout_fn is not None and not callable(self.rollout_fn):
            raise ConfigError(f"rollout_fn={self.rollout_fn!r} is not callable", where="EvalConfig")

    def _merge_agent(self) -> None:
        """Set the endpoint of an agent that is a model. Raises `ConfigError` for two models."""
        if (endpoint := self.__dict__.pop("_agent_endpoint", None)) is not None:
            if self.endpoint is not None:
                raise ConfigError(
                    "`agent` and `endpoint` both name a model",
                    where="EvalConfig",
                    hint="pass one of them",
                )
            object.__setattr__(self, "endpoint", endpoint)
        if self.agent is None:
            return
        for name in ("environment", "rollout_fn"):
            if getattr(self, name) is not None:
                raise ConfigError(
                    f"`{name}` applies to a model, but `agent` is {self.agent.name}",
                    where="EvalConfig",
                    hint=f"remove `{name}`, or pass the model as `endpoint` instead of an agent",
                )

    def check_agent_needs(self) -> None:
        """Raise `ConfigError` for an agent without its model, and a workspace without an agent."""
        agent = self.agent
        if getattr(agent, "needs_endpoint", False) and self.endpoint is None:
            assert agent is not None
            raise ConfigError(
                f"the agent {agent.name!r} needs a model",
                where="EvalConfig",
                hint="set `endpoint` (--model), such as anthropic:claude-sonnet-4-5",
            )
        for name in ("workspace", "setup", "check"):
            if getattr(self, name) is not None and agent is None:
                raise ConfigError(
                    f"`{name}` needs an agent that works in a folder, which a model alone does not",
                    where="EvalConfig",
                    hint="set `agent` (--agent), such as claude-code or cmd:COMMAND",
                )

    def _check_workspace(self) -> None:
        if not _ENDPOINT_FOLLOWS.get():
            self.check_agent_needs()
        if self.workspace is not None:
            object.__setattr__(self, "workspace", Path(self.workspace))
            if not Path(self.workspace).is_dir():
                raise ConfigError(
                    f"{str(self.workspace)!r} is not a folder", where="EvalConfig: workspace"
                )
        _ = self.setup_command, self.check_command  # refuses commands that cannot be run

    @cached_property
    def setup_command(self) -> "TaskCommand | None":
        """`setup`, parsed."""
        return _parse_command(self.setup, where="setup")

    @cached_property
    def check_command(self) -> "TaskCommand | None":
        """`check`, parsed."""
        return _parse_command(self.check, where="check")

    @property
    def uses_workspace(self) -> bool:
        """Whether each sample has a folder of its own, with the files of its row."""
        agent = self.agent
        settings = (self.workspace, self.setup, self.check)
        return agent is not None and (
            getattr(agent, "needs_workspace", False) or any(each is not None for each in settings)
        )

    def _check_kinds(self) -> None:
        for name, kind, hint in (
            ("name", str, "pass a string"),
            (
                "session",
                AgentSession | None,
                "pass an AgentSession, such as from Store.load_session()",
            ),
            ("limits", Limits, "pass an assay.agents.Limits"),
            ("run_limits", RunLimits | None, "pass an assay.runner.RunLimits"),
            ("client", ClientSettings, "pass an assay.providers.ClientSettings"),
        ):
            # The value is not shown: a wrong one may contain a key.
            given = getattr(self, name)
            if not isinstance(given, kind):
                message = f"`{name}` cannot be of type `{type(given).__name__}`"
                raise ConfigError(message, where="EvalConfig", hint=hint)

        if not (isinstance(self.replay, str | Path | None) or hasattr(self.replay, "describe")):
            raise ConfigError(
                f"`replay` cannot be of type `{type(self.replay).__name__}`",
                where="EvalConfig",
                hint="pass the path of a recording or the id of a run",
            )
        if self.replay_missing not in ("fail", "live"):
            raise ConfigError(
                f"replay_missing={self.replay_missing!r} is neither 'fail' nor 'live'",
                where="EvalConfig",
            )
        if self.replay is None and self.replay_missing != "fail":
            raise ConfigError("`replay_missing` has no effect without `replay`", where="EvalConfig")

    def _check_numbers(self) -> None:
        for name in ("repeats", "concurrency"):
            value = getattr(self, name)
            if not _is_plain_number(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r} is not a number above 0", where="EvalConfig")
        if self.concurrency > _MAX_CONCURRENCY:
            raise ConfigError(
                f"concurrency={self.concurrency} is above {_MAX_CONCURRENCY}", where="EvalConfig"
            )
        for name in ("seed", "max_samples"):
            value = getattr(self, name)
            if value is not None and not _is_plain_number(value, int):
                raise ConfigError(f"{name}={value!r} is not a whole number", where="EvalConfig")
        timeout = self.timeout_s
        plain = _is_plain_number(timeout, int | float)
        if timeout is not None and not (plain and 0 < timeout < math.inf):
            raise ConfigError(f"timeout_s={timeout!r} is not a number above 0", where="EvalConfig")
        if self.bounds is not None:
            _check_bounds(self.bounds)
        check_fail_on_error(self.fail_on_error, where="EvalConfig")
        check_max_cost(self.max_cost_usd, where="EvalConfig")

    @property
    def scorer(self) -> ScoreFunction:
        """`score_fn` as one function, also of a metric or a list."""
        # A name was resolved and a list combined when the configuration was made.
        given = self.score_fn
        assert callable(given)
        return given.scorer if isinstance(given, RegisteredMetric) else given

    @property
    def direction(self) -> Direction:
        """Whether high or low scores are good."""
        given = self.score_fn
        return given.direction if isinstance(given, RegisteredMetric | CombinedScorer) else "max"

    @property
    def score_bounds(self) -> tuple[float, float] | None:
        """The lowest and highest score possible; None for 0 to 1."""
        if self.bounds is None and isinstance(self.score_fn, RegisteredMetric):
            return None if self.score_fn.range == (0.0, 1.0) else self.score_fn.range
        return self.bounds

    @property
    def rolls_out(self) -> bool:
        """Whether an agent answers the samples before they are scored."""
        return self.agent is not None or self.endpoint is not None or self.rollout_fn is not None

    @cached_property
    def make_environment(self) -> Callable[[Sample], Environment]:
        """Creates the environment of one rollout, from its sample."""
        return build_environment_factory(self.environment, where="EvalConfig")

    def seed_of(self, sample: Sample, repeat: int) -> int | None:
        """Return the seed of a rollout's environment: the row's own, else derived from `seed`."""
        return derive_environment_seed(self.seed, sample, repeat)

    def sampling_seed_of(self, sample: Sample, repeat: int) -> int | None:
        """Return the sampling seed of a rollout, which differs for each repeat."""
        return derive_sampling_seed(self.seed, sample, repeat)

    def describe(self) -> dict[str, Any]:
        """Return all settings that affect results, as plain values without secrets.

        Runs with equal descriptions may share results. Settings of speed and retries are omitted.
        """
        # The keys `environment_factory` and `sample_timeout_s` are those of recorded runs, which
        # could not be resumed under other names.
        description: dict[str, Any] = {
            "endpoint": None if self.endpoint is None else describe_endpoint(self.endpoint),
            "score_fn": None if self.score_fn is None else _describe_setting(self.scorer),
            "prepare_messages": _describe_setting(self.prepare_messages),
            "environment_factory": _describe_environment(self.environment),
            "limits": self.limits.model_dump(),
            "seed": self.seed,
            "sample_timeout_s": self.timeout_s,
        }
        # Omitted when unset: the fingerprints of runs recorded before these fields existed stay.
        if self.rollout_fn is not None:
            description["rollout_fn"] = _describe_setting(self.rollout_fn)
        if self.agent is not None:
            description["agent"] = {"name": self.agent.name, "identity": self.agent.identity}
            # Not in the identity: runs that were recorded without it can still be resumed.
            if used := getattr(self.agent, "globals", None):
                description["agent_globals"] = used
        if self.workspace is not None:
            from assay.agents import digest_folder

            description["workspace"] = digest_folder(Path(self.workspace))
        for name in ("setup", "check"):
            if getattr(self, name) is not None:
                description[name] = getattr(self, name)
        if isinstance(self.prepare_messages, PromptTemplate):
            # The text itself, so that two runs can be compared by their prompts.
            description["prompt"] = self.prepare_messages.describe()
        if self.score_failures:
            description["score_failures"] = True
        if (bounds := self.score_bounds) is not None:
            description["bounds"] = [float(bound) for bound in bounds]
        if self.direction == "min":
            description["direction"] = "min"
        if self.session is not None:
            before = [message.to_dict() for message in self.session.messages]
            description["session"] = stable_id(before)
        if self.replay is not None:
            description["replay"] = describe_replay(self)
        return description

    def fingerprint(self) -> str:
        return stable_id(self.describe())


def _is_plain_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def check_fail_on_error(value: object, *, where: str) -> None:
    """Raise `ConfigError` unless the value is a flag, a share or a count."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int) and value >= 1:
        return
    if not isinstance(value, float) or not 0 < value < 1:
        raise ConfigError(
            f"fail_on_error={value!r} is not True or False, a share between 0 and 1, or a whole "
            "number of at least 1",
            where=where,
        )


def parse_fail_on_error(text: str) -> bool | int | float:
    """Parse `fail_on_error` of a command line: `true`, `false`, a count or a share.

    Raises `ConfigError` for anything else.
    """
    value: object = {"true": True, "false": False}.get(text.lower())
    if value is None:
        try:
            value = int(text) if text.isdecimal() else float(text)
        except ValueError:
            value = text
    check_fail_on_error(value, where="command line")
    return value  # type: ignore[return-value]  # checked


def check_max_cost(value: object, *, where: str) -> None:
    """Raise `ConfigError` unless the value is a positive, finite number."""
    if value is None or (_is_plain_number(value, int | float) and 0 < value < math.inf):  # type: ignore[operator]  # a number
        return
    raise ConfigError(f"max_cost_usd={value!r} is not a number above 0", where=where)


def _parse_command(text: str | None, *, where: str) -> "TaskCommand | None":
    if text is None:
        return None
    from assay.agents import TaskCommand  # loads what starts processes

    return TaskCommand(text, where=where)


def _check_bounds(bounds: object) -> None:
    pair = bounds if isinstance(bounds, tuple | list) else ()
    if len(pair) != 2 or not all(_is_plain_number(bound, int | float) for bound in pair):
        raise ConfigError(
            f"bounds={bounds!r} is not a pair of the lowest and the highest score",
            where="EvalConfig",
            hint="pass two numbers, such as bounds=(-1, 1)",
        )
    check_bounds((pair[0], pair[1]))


def _check_takes_sample(name: str, function: object) -> None:
    if not callable(function):
        raise ConfigError(f"{name}={function!r} is not callable", where="EvalConfig")
    if name != "score_fn" and inspect.iscoroutinefunction(function):
        raise ConfigError(f"`{name}` is async; only a scorer can be awaited", where="EvalConfig")
    try:
        inspect.signature(function).bind(object())
    except ValueError:
        return  # some built-in functions have no signature
    except TypeError as error:
        raise ConfigError(
            f"`{name}` cannot be called with a sample: {error}",
            where="EvalConfig",
            hint="the function must take one argument, the Sample",
        ) from None


def _describe_environment(environment: EnvironmentLike | None) -> Description | None:
    # The code of a plug-in may change under the same name.
    named = find_environment_plugin(environment) if isinstance(environment, str) else None
    return _describe_setting(environment if named is None else named)


def _describe_setting(value: object) -> Description | None:
    return value if value is None or isinstance(value, str) else describe_callable(value)
