"""The user's file of `assay eval`: its configuration and its dataset."""

import os
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from assay.datasets import SampleStream, Source, load_samples
from assay.errors import ConfigError
from assay.runner import EvalConfig
from assay.scorers import Rubric, import_file

from .ready_evals import find_ready_eval
from .sample_input import SAMPLE_FILE_SUFFIXES


@dataclass(frozen=True)
class EvalFile:
    """The definitions of an evaluation file."""

    path: Path
    config: EvalConfig
    dataset: Source | SampleStream
    name: str = "config"
    """The name of the configuration in the file."""

    rubric: Rubric | None = None
    """By which `--judge` grades, if the file defines one."""


def load_eval_file(
    target: str, *, dataset: str | None = None, split: str | None = None
) -> EvalFile:
    """Import `FILE.py`, `FILE.py:name` or a ready evaluation; take its configuration and dataset.

    `dataset` replaces that of the file. A function `adapter` of the file converts its rows.
    Raises `ConfigError` with the user's own traceback when the file is invalid.
    """
    path, name = split_target(target)
    module = import_file(path)
    config = _read_eval_definition(module, name, path)
    if not isinstance(config, EvalConfig):
        raise ConfigError(
            f"`{name}` is a {type(config).__name__}, not an EvalConfig", where=str(path)
        )
    rows: Source | SampleStream
    if dataset is not None:
        rows = dataset
    else:
        value = _read_eval_definition(module, "dataset", path)
        # The file may be a symbolic link, and the dataset beside the target of the link.
        rows = locate_dataset(value, path.parent, path.resolve().parent)
    adapter = vars(module).get("adapter")
    if isinstance(rows, str | PathLike) and (adapter is not None or split is not None):
        rows = load_samples(rows, adapter=adapter, split=split)
    elif split is not None:
        raise ConfigError(
            "--split has no effect: the file reads its dataset itself", where=str(path)
        )
    rubric = vars(module).get("rubric")
    return EvalFile(path, config, rows, name, rubric if isinstance(rubric, Rubric) else None)


def is_eval_file(target: str) -> bool:
    """Whether the target of `assay eval` is a Python file or a ready evaluation, not a dataset."""
    if find_ready_eval(target) is not None:
        return True
    file, _, name = target.rpartition(":")
    return (file if file and name.isidentifier() else target).endswith(".py")


def split_target(target: str) -> tuple[Path, str]:
    """Split `FILE.py[:config]`, or a ready evaluation, into its file and the configuration."""
    if (ready := find_ready_eval(target)) is not None:
        return ready, "config"
    file, colon, name = target.rpartition(":")
    # A colon may also be part of a path, as in `C:\\evals.py`.
    if not colon or not name.isidentifier():
        file, name = target, "config"
    path = Path(file)
    if path.suffix != ".py":
        raise ConfigError(
            "the evaluation is not a Python file",
            where=target,
            hint="name a file that defines `config`, an EvalConfig, and `dataset`: "
            "`assay eval my_eval.py`",
        )
    if not path.is_file():
        raise ConfigError("the file does not exist", where=str(path))
    return path, name


def _read_eval_definition(module: ModuleType, name: str, path: Path) -> Any:
    if name in vars(module):
        return vars(module)[name]
    configs = [each for each, value in vars(module).items() if isinstance(value, EvalConfig)]
    own = [
        f"`{each}`"
        for each, value in vars(module).items()
        if not each.startswith("_") and not isinstance(value, ModuleType)
        # Imported classes and functions have a `__qualname__` and another module; the rest are
        # values of the file.
        if not hasattr(value, "__qualname__") or value.__module__ == module.__name__
    ]
    hint = "write config = EvalConfig(agent=..., score_fn=...)"
    if name == "dataset":
        hint = 'write dataset = "questions.csv", or pass --dataset questions.csv'
    elif configs:
        hint = f"name the one to run: {path}:{configs[0]}"
    raise ConfigError(
        f"the file does not define `{name}`; it defines {', '.join(own) or 'nothing'}",
        where=str(path),
        hint=hint,
    )


def locate_dataset(value: Any, *folders: Path) -> Source | SampleStream:
    """Resolve the dataset of a file; a path is relative to the first folder that has it."""
    if not isinstance(value, str | PathLike) or not os.fspath(value):
        dataset: Source | SampleStream = value
        return dataset
    name = os.fspath(value)
    beside = [folder / name for folder in folders]
    found = next((path for path in beside if os.path.exists(path)), None)
    # A name without a file may be that of a registered dataset. A name with a file's suffix is a
    # file beside the evaluation, whatever the current folder.
    if found or isinstance(value, PathLike) or Path(name).suffix.lower() in SAMPLE_FILE_SUFFIXES:
        return found or beside[0]
    if os.path.exists(name):
        raise ConfigError(
            f"{name!r} exists in the current folder, but not beside the file",
            where=str(beside[0]),
            hint="paths are relative to the file's folder; if the name is that of a dataset, start "
            "the command in another folder",
        )
    return name
