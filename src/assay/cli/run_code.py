"""The location of a run's code: recorded by `assay eval`, read by `assay bundle`."""

import os
from argparse import Namespace
from collections.abc import Container
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from assay.scorers import hash_loaded_files

from .eval_file import EvalFile
from .resume import redact_option_value

RECORDED_OPTIONS: dict[str, type] = {
    "model": str,
    "key_env": str,
    "repeats": int,
    "max_turns": int,
    "timeout_s": float,
    "seed": int,
    "name": str,
}
"""Options that define a run and are not part of the evaluation file, with their types."""

REPLACING_OPTIONS = "agent prompt scorer workspace setup check dataset split judge".split()
"""Options that replace parts of the evaluation file."""

# A process with more has imported far more than an evaluation, and the list bloats the run.
_MAX_RECORDED_MODULES = 1000


class RunCode(BaseModel):
    """The evaluation file of a run, relative to the folder where the command was started."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    file: str
    config: str = "config"
    dataset: str | None = None
    """The dataset file, if `dataset` is a path; None if the code reads the dataset itself."""

    options: dict[str, str | int | float] = Field(default_factory=dict)
    modules: dict[str, str] = Field(default_factory=dict)
    """Imported files of the project, with the sha256 of each."""


def describe_run_code(file: EvalFile, args: Namespace, ignore: Container[str]) -> dict[str, Any]:
    """Return the entry `code` of a run's configuration, which the fingerprint does not cover.

    `ignore`: names of modules that were loaded before the evaluation file.
    """
    start = Path.cwd()
    given = {name: getattr(args, name, None) for name in RECORDED_OPTIONS}
    options = {name: value for name, value in given.items() if value is not None}
    if "model" in options:
        # A password in the address must not reach the store.
        options["model"] = redact_option_value(options["model"])
    absolute = Path(os.path.abspath(file.path))
    inside = absolute.is_relative_to(start)
    modules = hash_loaded_files(start, ignore=ignore)
    return RunCode(
        file=absolute.relative_to(start).as_posix() if inside else str(absolute),
        config=file.name,
        dataset=os.fspath(file.dataset) if isinstance(file.dataset, str | os.PathLike) else None,
        options=options,
        modules=modules if len(modules) <= _MAX_RECORDED_MODULES else {},
    ).model_dump()


def read_run_code(config: dict[str, Any]) -> RunCode | None:
    """Read the recorded code of a run; None if it was not recorded."""
    try:
        return RunCode.model_validate(config.get("code"))
    except ValidationError:
        return None


def replaces_parts(args: Namespace) -> bool:
    """Whether options replace parts of the evaluation file, which a bundle of its code lacks."""
    return any(getattr(args, name) is not None for name in REPLACING_OPTIONS)
