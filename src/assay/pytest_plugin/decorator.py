"""`@evaluation_test`: records the options of a test. The rest is imported when a test runs."""

import difflib
import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from numbers import Real
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from assay.errors import ConfigError

EvalFunction = TypeVar("EvalFunction", bound=Callable[..., Any])
OPTIONS_ATTRIBUTE = "__assay_evaluation__"
ENDPOINT_ARGUMENT = "assay_endpoint"
"""The argument that a test is parametrised by when it has several endpoints."""

_DECORATOR_WHERE = "@evaluation_test"


@dataclass(frozen=True)
class EvalOptions:
    """The options of an evaluation test."""

    function: Callable[..., Any]
    signature: inspect.Signature
    """The signature of the function in the source; pytest sees a shorter one."""

    samples: Any = None
    """A path, a dataset name, or rows in memory."""

    batch: bool = False
    """Call the function once, with lists."""

    groupwise: bool = False
    """Call the function once for all repeats and endpoints of a sample, with lists."""

    max_samples: int | None = None
    endpoint: Any = None
    """An Endpoint or a name such as `openai:gpt-5`. None: the samples are scored
    without a model call."""

    agent: Any = None
    """What answers the samples: a function, a model, `cmd:...`, `http://...` or an Agent. Beside
    an agent that is not a model, `endpoint` is the model that it calls through its context."""

    workspace: Any = None
    """A folder of which the agent gets a copy for each sample."""

    setup: str | None = None
    """A command that prepares the workspace of a sample."""

    check: str | None = None
    """A command that runs in the workspace after the agent; its result is
    `sample.trajectory.evaluation_result`."""

    endpoints: tuple[Any, ...] = ()
    """One test for each; with `groupwise`, one test for all of them."""

    environment: Any = None
    """A class, a factory that takes the sample, a name such as `gym:FrozenLake-v1`, or an async
    context manager that is open during the test and gives the factory."""

    env_url: str | None = None
    env_command: Any = None
    """Starts the environment's server; `{port}` in it and in `env_url` is a free port."""

    env_kind: Any = None
    """The protocol of the server: own, mcp or openenv. None: detected from the
    server's answers."""

    env_deadline_s: float = 60.0
    """How long the server may take to start answering."""

    env_token: str | None = field(default=None, repr=False)
    """Sent to the server as a bearer token. None: `$ASSAY_ENV_TOKEN`, if set."""

    step_timeout_s: float = 30.0
    """How long the server may take for one answer, such as one step."""

    threshold: Any = None
    """The lowest mean that passes: a number, or a `GateRule` for more than that."""

    tolerance: float | None = None
    """How far the mean may fall below the baseline's. Overrides `--assay-tolerance`."""

    bounds: tuple[float, float] | None = None
    """The lowest and highest score possible, where scores are not within 0..1."""

    repeats: int = 1
    concurrency: int = 100
    seed: int | None = None
    tags: tuple[str, ...] = ()
    timeout_s: float | None = None
    """For each sample."""

    retries: int = 0
    """How often failed samples are retried."""

    max_turns: int = 50
    fail_on_error: Any = None
    """Stop when more samples fail: True at the first, a count, or a share between 0 and 1."""

    max_cost_usd: float | None = None
    """Start no further samples once the model calls of the test have cost this much."""

    replay: Any = None
    """A recording that answers the calls of the agent instead of the model: a file of `assay runs
    record`, also beside the test's file, or the id of a run."""

    replay_missing: str = "fail"
    """`live`: the model answers the calls that are not in the recording."""

    prepare_messages: Callable[..., Any] | None = None
    rollout_fn: Callable[..., Any] | None = None
    """Rolls out a sample in place of the turn loop: takes the model's client and the sample, and
    returns the trajectory."""

    on_bad_row: str = "fail"
    adapter: Callable[..., Any] | None = None

    @property
    def takes_lists(self) -> bool:
        """Whether the function judges several results in one call."""
        return self.batch or self.groupwise


@dataclass(frozen=True)
class TranslatedOptions(EvalOptions):
    """The options of a test that is written for eval-protocol.

    A function that judges several results is called once for each repeat.
    """

    completion_params: tuple[dict[str, Any], ...] = ()
    """One for each endpoint: written into the metadata of its rows."""


class Options(TypedDict, total=False):
    """The options of `evaluation_test`, as type checkers see them; `EvalOptions` describes each."""

    batch: bool
    groupwise: bool
    max_samples: int | None
    endpoint: Any
    agent: Any
    workspace: Any
    setup: str | None
    check: str | None
    endpoints: Iterable[Any]
    environment: Any
    env_url: str | None
    env_command: Any
    env_kind: Literal["own", "mcp", "openenv"] | None
    env_deadline_s: float
    env_token: str | None
    step_timeout_s: float
    threshold: Any
    tolerance: float | None
    bounds: tuple[float, float] | None
    repeats: int
    concurrency: int
    seed: int | None
    tags: Iterable[str]
    timeout_s: float | None
    retries: int
    max_turns: int
    fail_on_error: bool | int | float | None
    max_cost_usd: float | None
    replay: Any
    replay_missing: Literal["fail", "live"]
    prepare_messages: Callable[..., Any] | None
    rollout_fn: Callable[..., Any] | None
    on_bad_row: Literal["fail", "skip"]
    adapter: Callable[..., Any] | None


# The options of eval-protocol's decorator. None of them has the name of one of assay's.
_EVAL_PROTOCOL_OPTIONS = frozenset(
    """
    aggregation_method combine_datasets completion_params data_loaders dataset_adapter
    disable_browser_open evaluation_test_kwargs exception_handler_config filtered_row_ids
    input_dataset input_messages input_rows logger max_concurrent_evaluations
    max_concurrent_rollouts max_dataset_rows mcp_config_path mode num_runs passed_threshold
    preprocess_fn rollout_processor rollout_processor_kwargs server_script_path steps
    """.split()
)

_KNOWN_OPTIONS = {each.name for each in fields(EvalOptions)} - {"function", "signature", "samples"}


def evaluation_test(
    samples: Any = None, **options: Unpack[Options]
) -> Callable[[EvalFunction], EvalFunction]:
    """Make a function an evaluation: pytest runs it over every sample and judges the mean.

    The function may have these parameters: `messages`, `ground_truth`, `sample`, any field of the
    dataset, fixtures, `**kwargs`. It returns a result, a number, a bool, or the sample with its
    result set. Called directly it is the plain function. The options are the fields of
    `EvalOptions`.
    """
    if inspect.isroutine(samples) or inspect.isclass(samples):
        raise ConfigError(
            "the decorator is used without parentheses",
            where=_DECORATOR_WHERE,
            hint="write @evaluation_test(...)",
        )
    given: dict[str, Any] = dict(options)
    if foreign := given.keys() & _EVAL_PROTOCOL_OPTIONS:
        return _translate_decorator(samples, given, sorted(foreign)[0])
    # None is the default of every option, but for `max_turns` it means no limit.
    for name in _KNOWN_OPTIONS - {"max_turns"}:
        if given.get(name, ...) is None:
            del given[name]
    _check_test_options(samples, given)
    for name in given.keys() & {"endpoints", "tags", "bounds"}:
        given[name] = tuple(given[name])
    # An iterator can be read once, and a retry or the next endpoint reads the rows again.
    rows = list(samples) if isinstance(samples, Iterator) else samples

    def mark(function: EvalFunction) -> EvalFunction:
        if not inspect.isfunction(function):
            raise ConfigError(
                f"the decorator is applied to a {type(function).__name__}, not to a function",
                where=_DECORATOR_WHERE,
                hint="put it below @staticmethod and @classmethod, and on each method of a class",
            )
        setattr(
            function,
            OPTIONS_ATTRIBUTE,
            EvalOptions(function, inspect.signature(function), rows, **given),
        )
        return function

    return mark


def _translate_decorator(
    samples: Any, options: dict[str, Any], foreign: str
) -> Callable[[EvalFunction], EvalFunction]:
    # Checked before the translation: mixed options would have no clear meaning.
    own = (
        "samples"
        if samples is not None
        else next(iter(options.keys() - _EVAL_PROTOCOL_OPTIONS), None)
    )
    if own is not None:
        raise ConfigError(
            f"`{foreign}` is an option of eval-protocol and cannot be combined with `{own}`",
            where=_DECORATOR_WHERE,
        )

    def mark(function: EvalFunction) -> EvalFunction:
        # Imported late: test files without these options must not pay for pydantic.
        from .eval_protocol.completion_params import describe_params
        from .eval_protocol.options import translate_options

        code = getattr(inspect.unwrap(function), "__code__", None)
        folder = os.path.dirname(code.co_filename) if code is not None else ""
        marked = evaluation_test(**translate_options(options, folder))(function)
        params = tuple(map(describe_params, options.get("completion_params") or ()))
        values = {
            each.name: getattr(getattr(marked, OPTIONS_ATTRIBUTE), each.name)
            for each in fields(EvalOptions)
        }
        setattr(marked, OPTIONS_ATTRIBUTE, TranslatedOptions(**values, completion_params=params))
        return marked

    return mark


_OPTION_MINIMUMS = {
    "repeats": 1,
    "concurrency": 1,
    "max_turns": 1,
    "retries": 0,
    "max_samples": 1,
}
_EXCLUSIVE_OPTIONS = (("endpoint", "endpoints"), ("batch", "groupwise"), ("environment", "env_url"))
_URL_ONLY_OPTIONS = ("env_command", "env_kind", "env_deadline_s", "env_token", "step_timeout_s")


def _check_test_options(samples: Any, options: dict[str, Any]) -> None:
    # When the file is imported, so that the error points at the decorator.
    for name in sorted(options.keys() - _KNOWN_OPTIONS):
        near = difflib.get_close_matches(name, sorted(_KNOWN_OPTIONS), n=1)
        known = f"the options are {', '.join(sorted(_KNOWN_OPTIONS))}"
        if name in ("data", "dataset", "rows"):
            known = "pass the dataset as the first argument"
        raise ConfigError(
            f"unknown option {name!r}",
            where=_DECORATOR_WHERE,
            hint=f"did you mean {near[0]!r}?" if near else known,
        )
    if samples is None:
        raise ConfigError(
            "the test has no samples",
            where=_DECORATOR_WHERE,
            hint="pass a path, a dataset name or a list",
        )
    for one, other in _EXCLUSIVE_OPTIONS:
        if options.get(one) and options.get(other):
            raise ConfigError(f"pass `{one}` or `{other}`, not both", where=_DECORATOR_WHERE)
    for name in _URL_ONLY_OPTIONS:
        if options.get(name) is not None and options.get("env_url") is None:
            raise ConfigError(f"`{name}` needs the `env_url` of the server", where=_DECORATOR_WHERE)
    token = options.get("env_token")
    if token is not None and not (isinstance(token, str) and token):
        # Not shown: the value is a secret.
        raise ConfigError("`env_token` is not a non-empty string", where=_DECORATOR_WHERE)
    if options.get("replay_missing", "fail") not in ("fail", "live"):
        raise ConfigError(
            f"replay_missing={options['replay_missing']!r} is neither 'fail' nor 'live'",
            where=_DECORATOR_WHERE,
        )
    _check_lists(options)
    _check_numbers(options)
    _check_scale(options)
    if options.get("on_bad_row", "fail") not in ("fail", "skip"):
        raise ConfigError(
            f"on_bad_row={options['on_bad_row']!r} is neither 'fail' nor 'skip'",
            where=_DECORATOR_WHERE,
        )


def _check_lists(options: dict[str, Any]) -> None:
    for name in ("endpoints", "tags"):
        value = options.get(name, ())
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise ConfigError(f"{name}={value!r} is not a list", where=_DECORATOR_WHERE)
        if name in options:
            options[name] = list(value)  # a generator can be read once, and is read again below
    if not all(isinstance(tag, str) for tag in options.get("tags", ())):
        raise ConfigError(f"tags={options['tags']!r} are not words", where=_DECORATOR_WHERE)
    if "endpoints" in options and not options["endpoints"]:
        raise ConfigError(
            "`endpoints` is empty",
            where=_DECORATOR_WHERE,
            hint="omit it to score the samples without a model call",
        )
    for endpoint in (options.get("endpoint"), *options.get("endpoints", ())):
        known = endpoint is None or isinstance(endpoint, str)
        if not known and not (hasattr(endpoint, "provider") and hasattr(endpoint, "model")):
            raise ConfigError(
                f"{endpoint!r} is not an endpoint",
                where=_DECORATOR_WHERE,
                hint="pass an Endpoint or a name such as 'openai:gpt-5'",
            )


def _check_numbers(options: dict[str, Any]) -> None:
    for name, least in _OPTION_MINIMUMS.items():
        value = options.get(name)
        if value is not None and (type(value) is not int or value < least):
            raise ConfigError(
                f"{name}={value!r} is not an integer of at least {least}", where=_DECORATOR_WHERE
            )
    for name in ("timeout_s", "env_deadline_s", "step_timeout_s"):
        value = options.get(name)
        if value is not None and not (_is_comparable_number(value) and 0 < value < math.inf):
            raise ConfigError(
                f"{name}={value!r} is not a positive number of seconds", where=_DECORATOR_WHERE
            )
    threshold = options.get("threshold")
    if (
        threshold is not None
        and not (_is_comparable_number(threshold) and abs(threshold) < math.inf)
        and not hasattr(threshold, "minimum")
    ):
        raise ConfigError(
            f"threshold={threshold!r} is not a number",
            where=_DECORATOR_WHERE,
            hint="pass a number, or a GateRule of assay.stats",
        )


def _check_scale(options: dict[str, Any]) -> None:
    tolerance, bounds = options.get("tolerance"), options.get("bounds")
    if tolerance is not None and not (
        _is_comparable_number(tolerance) and 0 <= tolerance < math.inf
    ):
        raise ConfigError(
            f"tolerance={tolerance!r} is not a number of at least 0", where=_DECORATOR_WHERE
        )
    if bounds is None:
        return
    pair = bounds if isinstance(bounds, tuple | list) else ()
    known = len(pair) == 2 and all(
        _is_comparable_number(each) and math.isfinite(each) for each in pair
    )
    if not known or pair[0] >= pair[1]:
        raise ConfigError(
            f"bounds={bounds!r} are not the lowest and the highest score possible",
            where=_DECORATOR_WHERE,
            hint="pass two numbers, such as bounds=(-1, 1)",
        )


def _is_comparable_number(value: object) -> bool:
    # NaN, the only number unequal to itself, would make every comparison false.
    return type(value) is not bool and isinstance(value, Real) and bool(value == value)


def eval_options_of(function: object) -> EvalOptions | None:
    """Return the options of an evaluation test; None for any other function."""
    # A class stores a static or class method as a wrapper around the function.
    found = getattr(getattr(function, "__func__", function), OPTIONS_ATTRIBUTE, None)
    return found if isinstance(found, EvalOptions) else None


def is_async(function: Callable[..., Any]) -> bool:
    """Whether a test's function has to be awaited."""
    return inspect.iscoroutinefunction(function)
