"""The user's file of `assay train grpo`: import it and check its definitions."""

from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from assay.datasets import SampleStream, Source
from assay.environments import rename_environment
from assay.errors import ConfigError
from assay.providers import LocalModel
from assay.scorers import ScoreFunction
from assay.train import GRPOConfig

from .eval_file import import_file, locate_dataset


@dataclass(frozen=True)
class TrainFile:
    """The definitions of a training file."""

    path: Path
    config: GRPOConfig
    prompts: Source | SampleStream
    score_fn: ScoreFunction | None
    environment: Any
    prepare_messages: Any
    model: LocalModel | None
    """A model that the file builds itself; None for the folder that `config` names."""


def load_train_file(target: str, **changes: object) -> TrainFile:
    """Import `FILE.py`; `changes` override its configuration."""
    path = Path(target)
    if path.suffix != ".py":
        raise ConfigError(
            "the training is not a Python file",
            where=target,
            hint="name a file that defines `config`, `prompts`, `score_fn` and, with one, "
            "`environment`",
        )
    if not path.is_file():
        raise ConfigError("the file does not exist", where=target)
    module = import_file(path)
    config = _override_grpo_config(_read_train_definition(module, "config", path), path, changes)
    defined = dict(vars(module))
    rename_environment(defined, "environment_cls", where=target)
    score_fn, environment = defined.get("score_fn"), defined["environment"]
    if score_fn is None and environment is None:
        raise ConfigError("the file defines neither `score_fn` nor `environment`", where=target)
    return TrainFile(
        path=path,
        config=config,
        prompts=locate_dataset(_read_train_definition(module, "prompts", path), path.parent),
        score_fn=score_fn,
        environment=environment,
        prepare_messages=vars(module).get("prepare_messages"),
        model=_read_local_model(vars(module).get("model"), path),
    )


def _read_train_definition(module: ModuleType, name: str, path: Path) -> Any:
    if name in vars(module):
        return vars(module)[name]
    raise ConfigError(
        f"the file does not define `{name}`",
        where=str(path),
        hint="define `config`, a GRPOConfig, `prompts`, and `score_fn` or `environment`",
    )


def _override_grpo_config(value: object, path: Path, changes: dict[str, object]) -> GRPOConfig:
    if not isinstance(value, GRPOConfig):
        raise ConfigError(
            f"`config` is a {type(value).__name__}, not a GRPOConfig", where=str(path)
        )
    given = {name: change for name, change in changes.items() if change is not None}
    try:
        # Validated anew: an override may contradict another setting.
        return GRPOConfig.model_validate({**dict(value), **given})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        field = ".".join(map(str, problem["loc"])) or "config"
        raise ConfigError(f"{field}: {problem['msg']}", where=str(path)) from None


def _read_local_model(value: object, path: Path) -> LocalModel | None:
    # A function builds the model only when the file is trained, not when it is imported.
    if callable(value):
        value = value()
    if value is None or isinstance(value, LocalModel):
        return value
    raise ConfigError(f"`model` is a {type(value).__name__}, not a LocalModel", where=str(path))
