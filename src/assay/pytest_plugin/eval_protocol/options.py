"""Translation of eval-protocol's `evaluation_test` options to assay's."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from assay.errors import ConfigError
from assay.types import Sample

from .completion_params import parse_completion_params
from .dataset import (
    AdaptedFiles,
    DatasetRows,
    copy_rows,
    default_dataset_adapter,
    find_beside,
    load_messages,
)
from .mcp_gym import GymServer
from .mcp_servers import McpServers
from .processors import (
    AgentRolloutProcessor,
    CustomRollouts,
    MCPGymRolloutProcessor,
    NoOpRolloutProcessor,
    RolloutProcessor,
    SingleTurn,
    SingleTurnRolloutProcessor,
)
from .retries import read_max_retries

_OPTIONS_WHERE = "@evaluation_test"
_INPUTS = ("input_dataset", "input_messages", "input_rows")
_UNSUPPORTED = ("data_loaders", "evaluation_test_kwargs", "logger")
_WHOLE_NUMBER = (int, "a whole number")
_FUNCTION = (Callable, "a function")
_OPTION_TYPES: Mapping[str, tuple[Any, str]] = {
    "completion_params": (list | tuple, "a list of dictionaries"),
    "dataset_adapter": _FUNCTION,
    "filtered_row_ids": (list | tuple | set | frozenset, "a list of row ids"),
    "input_dataset": (str | Path | list | tuple, "a list of paths"),
    "max_concurrent_evaluations": _WHOLE_NUMBER,
    "max_concurrent_rollouts": _WHOLE_NUMBER,
    "max_dataset_rows": _WHOLE_NUMBER,
    "num_runs": _WHOLE_NUMBER,
    "preprocess_fn": _FUNCTION,
    "rollout_processor_kwargs": (Mapping, "a dictionary"),
    "steps": _WHOLE_NUMBER,
}
_MODES: Mapping[str, dict[str, bool]] = {
    "pointwise": {},
    "groupwise": {"groupwise": True},
    "all": {"batch": True},
}


class EvaluationThreshold(BaseModel):
    """The lowest mean score that passes."""

    model_config = ConfigDict(extra="forbid")

    success: float
    standard_error: float | None = None


def translate_options(options: Mapping[str, Any], test_folder: str) -> dict[str, Any]:
    """Return the equivalent arguments of assay's `evaluation_test`.

    `test_folder`, the folder of the test file, is the fallback for relative paths. Raises
    `ConfigError` for options that assay does not support.
    """
    # eval-protocol takes None for the default of an option.
    options = {name: value for name, value in options.items() if value is not None}
    for name, (kind, what) in _OPTION_TYPES.items():
        value = options.get(name)
        # A bool is an int in Python, but not a count.
        if name in options and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"{name}={value!r:.80} is not {what}", where=_OPTIONS_WHERE)
    _refuse_unsupported(options)
    folder, mode = Path(test_folder), options.get("mode", "pointwise")
    rollout = _translate_processor(options, folder)
    rows = _read_rows(options, folder)
    if not isinstance(mode, str) or mode not in _MODES:
        raise ConfigError(f"mode={mode!r} is not one of {', '.join(_MODES)}", where=_OPTIONS_WHERE)
    translated: dict[str, Any] = {
        "samples": rows,
        "repeats": options.get("num_runs", 1),
        "concurrency": min(
            # assay has one limit for rollouts and scoring: the lower one is safe for both.
            options.get("max_concurrent_rollouts", 96),
            options.get("max_concurrent_evaluations", 96),
        ),
        **_MODES[mode],
        **rollout,
    }
    threshold = options.get("passed_threshold")
    if isinstance(threshold, Mapping):
        try:
            threshold = EvaluationThreshold.model_validate(dict(threshold))
        except ValidationError:
            raise ConfigError(
                f"passed_threshold={threshold!r:.80} is not a threshold",
                where=_OPTIONS_WHERE,
                hint="pass a number, or a dictionary with `success`",
            ) from None
    if isinstance(threshold, EvaluationThreshold):
        if threshold.standard_error is not None:
            raise _make_unsupported_error(
                "passed_threshold with a `standard_error`", "use a GateRule of assay"
            )
        threshold = threshold.success
    if threshold is not None:
        translated["threshold"] = threshold
    return translated


def _refuse_unsupported(options: Mapping[str, Any]) -> None:
    for name in _UNSUPPORTED:
        if name in options and options[name] != [None]:
            raise _make_unsupported_error(f"`{name}`")
    if options.get("aggregation_method", "mean") != "mean":
        raise _make_unsupported_error(
            f"aggregation_method={options['aggregation_method']!r}", "use 'mean'"
        )
    if options.get("combine_datasets") is False and len(options.get("input_dataset") or ()) > 1:
        raise _make_unsupported_error("combine_datasets=False", "write one test for each dataset")


def _make_unsupported_error(what: str, hint: str | None = None) -> ConfigError:
    return ConfigError(
        f"{what} of eval-protocol is not supported by assay",
        where=_OPTIONS_WHERE,
        hint=hint or "`assay docs compat` lists the supported options",
    )


def _read_rows(options: Mapping[str, Any], folder: Path) -> DatasetRows:
    given = [name for name in _INPUTS if options.get(name) is not None]
    if len(given) != 1:
        raise ConfigError(f"pass exactly one of {', '.join(_INPUTS)}", where=_OPTIONS_WHERE)
    (name,) = given
    value = options[name]
    if name == "input_dataset":
        places = [str(place) for place in (value if isinstance(value, list | tuple) else [value])]
        adapter = options.get("dataset_adapter") or default_dataset_adapter
        load: Any = AdaptedFiles(places, adapter, folder)
    elif name == "input_messages":
        rows = _take_only_dataset(value, name)
        if not all(isinstance(row, list | tuple) for row in rows):
            raise ConfigError(
                "a row of `input_messages` is not a list of messages",
                where=_OPTIONS_WHERE,
                hint="write [[[message, ...], ...]]: datasets of rows of messages",
            )
        load = partial(load_messages, rows)
    else:
        rows = _take_only_dataset(value, name)
        if not all(isinstance(row, Sample) for row in rows):
            raise ConfigError("a row of `input_rows` is not an EvaluationRow", where=_OPTIONS_WHERE)
        load = partial(copy_rows, rows)
    row_ids = options.get("filtered_row_ids")
    if not all(isinstance(each, str) for each in row_ids or ()):
        raise ConfigError("a row id in `filtered_row_ids` is not text", where=_OPTIONS_WHERE)
    return DatasetRows(
        load,
        max_rows=options.get("max_dataset_rows"),
        row_ids=None if row_ids is None else frozenset(row_ids),
        preprocess=options.get("preprocess_fn"),
    )


def _take_only_dataset(datasets: Any, name: str) -> list[Any]:
    if not isinstance(datasets, list | tuple) or not all(
        isinstance(dataset, list | tuple) for dataset in datasets
    ):
        raise ConfigError(
            f"`{name}` is not a list of datasets, each a list of rows", where=_OPTIONS_WHERE
        )
    if len(datasets) != 1:
        raise _make_unsupported_error(
            f"`{name}` with {len(datasets)} datasets", "write one test for each"
        )
    return list(datasets[0])


def _translate_processor(options: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    processor = options.get("rollout_processor") or SingleTurnRolloutProcessor()
    if not isinstance(processor, RolloutProcessor):
        raise ConfigError(
            f"rollout_processor={processor!r} is not a RolloutProcessor",
            where=_OPTIONS_WHERE,
            hint="pass an instance, such as SingleTurnRolloutProcessor()",
        )
    kwargs = options.get("rollout_processor_kwargs") or {}
    if "exception_handler_config" in options:
        # Checked for all processors, also where no call would be retried.
        options = {**options, "max_retries": read_max_retries(options["exception_handler_config"])}
    if isinstance(processor, NoOpRolloutProcessor):
        # The parameters are not used, but several would mean several evaluations.
        _take_only_params(processor, options)
        return {}
    if isinstance(processor, MCPGymRolloutProcessor):
        script = options.get("server_script_path")
        if script is None:
            raise ConfigError(
                "MCPGymRolloutProcessor needs `server_script_path`", where=_OPTIONS_WHERE
            )
        server = GymServer(str(script), folder, kwargs)
        return {
            **_translate_endpoints(options),
            "environment": server,
            "max_turns": options.get("steps", 30),
        }
    # Not isinstance: a subclass overrides `__call__` and is a custom processor.
    if type(processor) is SingleTurnRolloutProcessor:
        _refuse_kwargs(kwargs)
        return {
            **_translate_endpoints(options),
            "environment": SingleTurn,
            "prepare_messages": processor.prepare,
        }
    if isinstance(processor, AgentRolloutProcessor):
        _refuse_kwargs(kwargs)
        path = options.get("mcp_config_path")
        servers = {} if not path else {"environment": McpServers(find_beside(str(path), folder))}
        return {**_translate_endpoints(options), **servers, "max_turns": options.get("steps", 30)}
    if "exception_handler_config" in options:
        # It would retry whole rollouts, of which assay knows only the model calls.
        raise _make_unsupported_error(
            f"`exception_handler_config` with {type(processor).__name__}",
            "set `max_retries` in `completion_params`",
        )
    given = _take_only_params(processor, options)
    rollouts = CustomRollouts(
        processor,
        {
            "completion_params": given,
            "mcp_config_path": options.get("mcp_config_path") or "",
            "server_script_path": options.get("server_script_path"),
            "steps": options.get("steps", 30),
            "kwargs": dict(kwargs),
        },
    )
    # A custom processor may do without a model.
    endpoints = _translate_endpoints(options) if given.get("model") else {}
    return {**endpoints, "environment": rollouts, "rollout_fn": rollouts.roll_out}


def _take_only_params(processor: RolloutProcessor, options: Mapping[str, Any]) -> dict[str, Any]:
    given = _list_params(options)
    if len(given) > 1:
        raise _make_unsupported_error(
            f"{type(processor).__name__} with several `completion_params`",
            "write one test for each",
        )
    return dict(given[0]) if given else {}


def _list_params(options: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    # eval-protocol accepts None in the list for "no parameters".
    each = [params or {} for params in options.get("completion_params", ())]
    if not all(isinstance(params, Mapping) for params in each):
        raise ConfigError("`completion_params` is not a list of dictionaries", where=_OPTIONS_WHERE)
    return each


def _refuse_kwargs(kwargs: Mapping[str, Any]) -> None:
    # `extra_body` has no effect on these processors in eval-protocol either.
    if others := sorted(kwargs.keys() - {"extra_body"}):
        raise _make_unsupported_error(f"rollout_processor_kwargs={others}")


def _translate_endpoints(options: Mapping[str, Any]) -> dict[str, Any]:
    given = _list_params(options)
    if not given:
        raise ConfigError(
            "`completion_params` is missing, so no model can be called",
            where=_OPTIONS_WHERE,
            hint="pass it to evaluation_test(); assay does not read it from "
            "pytest.mark.parametrize. NoOpRolloutProcessor() scores rows without a model call",
        )
    endpoints = [parse_completion_params(params) for params in given]
    if (retries := options.get("max_retries")) is not None:
        endpoints = [
            endpoint
            if endpoint.max_retries is not None
            else endpoint.model_copy(update={"max_retries": retries})
            for endpoint in endpoints
        ]
    return {"endpoint": endpoints[0]} if len(endpoints) == 1 else {"endpoints": endpoints}
