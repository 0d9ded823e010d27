"""Options of `assay eval` that override the evaluation file, shared with other commands."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from typing import Any

from assay.agents import Agent
from assay.errors import ConfigError
from assay.providers import parse_model
from assay.runner import EvalConfig, Resume, RunLimits, parse_fail_on_error
from assay.scorers import ScoreFunction, import_code_ref, is_code_ref, require_metric
from assay.types import Endpoint

from .arguments import add_flag

# Options with the name of the setting that they override.
_CONFIG_OPTIONS = (
    "repeats max_samples seed timeout_s name fail_on_error max_cost_usd save_sessions replay "
    "replay_missing workspace setup check".split()
)
# Fields that belong to the server of an endpoint; the others are sampling settings.
_SERVER_FIELDS = (
    "api_base api_key key_env oauth_token headers extra_params allow_plain_http".split()
)


def override_config(config: EvalConfig, args: Namespace) -> EvalConfig:
    """Apply the given options to the file's configuration."""
    changes: dict[str, Any] = {
        name: value for name in _CONFIG_OPTIONS if (value := getattr(args, name, None)) is not None
    }
    if args.model is not None:
        changes["endpoint"] = replace_model(config.endpoint, parse_model(args.model))
    endpoint = changes.get("endpoint", config.endpoint)
    if endpoint is not None:
        changes["endpoint"] = apply_endpoint_options(endpoint, args)
    elif getattr(args, "key_env", None) is not None:
        raise ConfigError(
            "--key-env has no effect: the file has no endpoint", hint="add one with --model"
        )
    if getattr(args, "max_turns", None) is not None:
        changes["limits"] = config.limits.model_copy(update={"max_turns": args.max_turns})
    run_limits = {
        f"max_{name}": value
        for name in ("turns", "tokens", "seconds", "cost_usd")
        if (value := getattr(args, f"max_run_{name}", None)) is not None
    }
    if run_limits:
        changes["run_limits"] = replace(config.run_limits or RunLimits(), **run_limits)
    if args.concurrency is not None:
        changes["concurrency"] = args.concurrency
        changes["client"] = replace(config.client, concurrency=args.concurrency)
    return replace(config, **changes)


def names_model(args: Namespace) -> bool:
    """Whether the command line names an agent or a model, directly or by a session."""
    return args.model is not None or any(
        getattr(args, name, None) is not None for name in ("agent", "session")
    )


def add_scorer_option(parser: ArgumentParser, *, required: bool = False) -> None:
    """Declare `--scorer`."""
    parser.add_argument(
        "--scorer",
        action="append",
        required=required,
        metavar="NAME|FILE.py:FUNCTION",
        help="score with a metric such as exact_answer or with your own function (repeatable: each "
        "is a metric, NAME=WEIGHT gives it a weight)",
    )


def resolve_scorers(
    names: list[str],
) -> ScoreFunction | list[ScoreFunction | tuple[ScoreFunction, float]]:
    """Return the scorer of each name, with its weight. Raises `ConfigError` for an unknown one."""
    found: list[ScoreFunction | tuple[ScoreFunction, float]] = []
    for name in names:
        ref, weight = _split_weight(name)
        scorer = _resolve_scorer(ref)
        found.append(scorer if weight is None else (scorer, weight))
    # A single scorer keeps the metrics that it returns as they are.
    return found[0] if len(found) == 1 and callable(found[0]) else found


def _split_weight(text: str) -> tuple[str, float | None]:
    name, equals, number = text.rpartition("=")
    if not equals:
        return text, None
    with suppress(ValueError):
        if isfinite(weight := float(number)):
            return name, weight
    raise ConfigError(
        f"the weight {number!r} is not a finite number",
        where=f"--scorer {text}",
        hint="write NAME=WEIGHT, such as exact_answer=0.7",
    )


def _resolve_scorer(ref: str) -> ScoreFunction:
    if not is_code_ref(ref):
        return require_metric(ref, where="--scorer")
    found: Any = import_code_ref(ref, where="--scorer")
    if not callable(found) or isinstance(found, type):
        raise ConfigError(
            f"{ref!r} is a {type(found).__name__}, not a scorer",
            where="--scorer",
            hint="name a function that takes the sample and returns a score",
        )
    scorer: ScoreFunction = found
    return scorer


def replace_agent(config: EvalConfig, agent: Agent | Endpoint, args: Namespace) -> EvalConfig:
    """Return the configuration with another agent, of which nothing of the old one is left."""
    if isinstance(agent, Endpoint):
        if args.model is not None:
            raise ConfigError(
                "--agent and --model both name a model", hint="leave out one of the two options"
            )
        return replace(config, agent=None, endpoint=agent)
    # Without an agent the endpoint is the model under test; beside one, a model that it calls.
    endpoint = None if config.agent is None else config.endpoint
    # An environment offers its tools to a model; an agent brings its own. Where it is also the
    # scorer it has to stay, which is refused.
    environment = config.environment if config.score_fn is None else None
    return replace(config, agent=agent, endpoint=endpoint, environment=environment)


def add_endpoint_options(parser: ArgumentParser) -> None:
    """Declare `--key-env` and `--allow-plain-http`."""
    parser.add_argument(
        "--key-env",
        metavar="NAME",
        type=_parse_variable_name,
        help="read the endpoint's key from this environment variable",
    )
    add_flag(
        parser, "--allow-plain-http", "allow sending a key to an http:// address of another machine"
    )


def add_replay_options(parser: ArgumentParser) -> None:
    """Declare `--replay` and `--replay-missing`."""
    parser.add_argument(
        "--replay",
        metavar="RUN|FILE",
        help="answer model calls from a recorded run or a file of `assay runs record`: no model is "
        "asked, and no key is needed",
    )
    parser.add_argument(
        "--replay-missing",
        choices=["fail", "live"],
        help="fail: a sample with a call that is not recorded is inconclusive (default); live: ask "
        "the model for such calls",
    )


def apply_endpoint_options(endpoint: Endpoint, args: Namespace, *, key: bool = True) -> Endpoint:
    """Give the endpoint the options of `add_endpoint_options`; without `key`, not `--key-env`."""
    changes: dict[str, object] = {}
    if getattr(args, "allow_plain_http", False):
        changes["allow_plain_http"] = True
    if key and (name := getattr(args, "key_env", None)) is not None:
        # All other keys are dropped: they may belong to another address.
        changes |= {"key_env": name, "api_key": "", "oauth_token": ""}
    return endpoint.model_copy(update=changes) if changes else endpoint


def _parse_variable_name(text: str) -> str:
    if not text.isidentifier() or not text.isascii():
        # The value is not quoted: it may be the key itself.
        raise ArgumentTypeError("the value must be the name of an environment variable")
    return text


def replace_model(own: Endpoint | None, wanted: Endpoint) -> Endpoint:
    """Return `wanted` with the sampling settings of `own`.

    With the same provider and address only the model changes. Otherwise no field of the old
    server is passed to the new one, in particular no key.
    """
    if own is None:
        return wanted
    if wanted.provider == own.provider and wanted.api_base is None:
        return own.model_copy(update={"model": wanted.model})
    server = {name: getattr(wanted, name) for name in _SERVER_FIELDS}
    changed = {"provider": wanted.provider, "model": wanted.model, **server}
    known = {name: getattr(own, name) for name in Endpoint.model_fields}
    # Validated anew instead of copied: unknown extra fields may be secrets of the old server.
    return Endpoint.model_validate(known | changed)


def read_resume_options(args: Namespace) -> Resume | None:
    """Read which run to resume. Raises `ConfigError` for options that need `--resume`."""
    if args.resume is not None:
        return Resume(
            args.resume,
            allow_changed_dataset=args.allow_changed_dataset,
            take_over=args.take_over,
            rescore=getattr(args, "rescore", False),
        )
    joins = getattr(args, "run", None) is not None
    for option in ("allow_changed_dataset", "take_over", "rescore"):
        if getattr(args, option, False) and not (joins and option == "allow_changed_dataset"):
            flag = f"--{option.replace('_', '-')}"
            raise ConfigError(
                f"{flag} has no effect without --resume", hint=f"add --resume to {flag}"
            )
    return None


def parse_failure_limit(text: str) -> bool | int | float:
    """Parse a value of `fail_on_error`."""
    try:
        return parse_fail_on_error(text)
    except ConfigError:
        raise ArgumentTypeError(
            f"{text!r} is neither a share between 0 and 1 nor a count of 1 or more"
        ) from None
