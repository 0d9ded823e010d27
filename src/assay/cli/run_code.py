"""Where the code of a run is: recorded by `assay eval`, read by `assay bundle`."""

import os
from argparse import Namespace
from collections.abc import Container
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.scorers import hash_loaded_files

from .eval_file import EvalFile
from .resume import redact_option_value

RECORDED_OPTIONS = ("model", "key_env", "repeats", "seed", "name")
"""Options that decide what a run is, and that the evaluation file does not know."""

_MAX_RECORDED_MODULES = 1000


class RunCode(BaseModel):
    """The evaluation file of a run, relative to the folder where the command was started."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str
    config: str = "config"
    dataset: str | None = None
    """The dataset file, where `dataset` is its path; None where the code reads it by itself."""

    options: dict[str, str | int] = Field(default_factory=dict)
    modules: dict[str, str] = Field(default_factory=dict)
    """Files of the project that were imported, with the sha256 of each."""


def describe_run_code(file: EvalFile, args: Namespace, ignore: Container[str]) -> dict[str, Any]:
    """The entry `code` of a run's configuration. It is not a part of the fingerprint.

    `ignore`: names of modules that were loaded before the evaluation file was.
    """
    start = Path.cwd()
    given = {name: getattr(args, name, None) for name in RECORDED_OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    if "model" in options:
        options["model"] = redact_option_value(options["model"])
    absolute = Path(os.path.abspath(file.path))
    inside = absolute.is_relative_to(start)
    modules = hash_loaded_files(start, ignore=ignore)
    return RunCode(
        file=absolute.relative_to(start).as_posix() if inside else str(absolute),
        config=file.name,
        dataset=os.fspath(file.dataset) if isinstance(file.dataset, str | os.PathLike) else None,
        options=options,
        # More than that is a process which imported far more than an evaluation.
        modules=modules if len(modules) <= _MAX_RECORDED_MODULES else {},
    ).model_dump()


def read_run_code(config: dict[str, Any]) -> RunCode | None:
    """What was recorded of a run's code; None when nothing was."""
    try:
        return RunCode.model_validate(config.get("code"))
    except ValidationError:
        return None
