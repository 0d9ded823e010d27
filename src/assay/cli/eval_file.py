"""The user's file of `assay eval`: import it, and show errors with the user's own traceback."""

import os
import sys
import traceback
from dataclasses import dataclass
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from os import PathLike
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from assay.datasets import SampleStream, Source
from assay.errors import AssayError, ConfigError
from assay.runner import EvalConfig

from .sample_input import SAMPLE_FILE_SUFFIXES


@dataclass(frozen=True)
class EvalFile:
    """The definitions of an evaluation file."""

    path: Path
    config: EvalConfig
    dataset: Source | SampleStream
    name: str = "config"
    """The name of the configuration in the file."""


def load_eval_file(target: str) -> EvalFile:
    """Import `FILE.py` or `FILE.py:name` and take its configuration and its dataset.

    Raises `ConfigError` with the user's own traceback when the file is invalid.
    """
    path, name = split_target(target)
    module = import_file(path)
    config = _read_eval_definition(module, name, path)
    if not isinstance(config, EvalConfig):
        raise ConfigError(
            f"`{name}` is a {type(config).__name__}, not an EvalConfig", where=str(path)
        )
    value = _read_eval_definition(module, "dataset", path)
    # The file may be a symbolic link, and the dataset beside the target of the link.
    dataset = locate_dataset(value, path.parent, path.resolve().parent)
    return EvalFile(path, config, dataset, name)


def format_user_traceback(error: BaseException, path: Path) -> str | None:
    """Return the traceback within the user's file and its neighbours; None if it has no frame."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and not _is_same_path(path, frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    if frame is None:
        return None
    shown = traceback.TracebackException(type(error), error, frame)
    folder = os.path.abspath(path.parent) + os.sep
    ours = [os.path.abspath(each.filename).startswith(folder) for each in shown.stack]
    last = max((index for index, own in enumerate(ours) if own), default=0)
    # Frames of libraries after the last own one would bury the user's line.
    shown.stack = traceback.StackSummary.from_list(shown.stack[: last + 1])
    return "".join(shown.format()).rstrip()


def _is_same_path(path: Path, filename: str) -> bool:
    return os.path.abspath(filename) == os.path.abspath(path)


def split_target(target: str) -> tuple[Path, str]:
    """Split `FILE.py[:config]` into the file and the name of the configuration."""
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


def import_file(path: Path) -> ModuleType:
    """Import a user's file. Raises `ConfigError` with the user's own traceback."""
    name = _choose_module_name(path)
    spec = spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise ConfigError("the file cannot be imported", where=str(path))
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = module_from_spec(spec)
    # Registered before it runs, as by any import: dataclasses and pickle look modules up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    # An interruption is not an error of the file.
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # BaseException: a file may also call sys.exit().
        del sys.modules[name]
        raise _build_import_error(error, path) from None
    return module


def _choose_module_name(path: Path) -> str:
    """Return the file's own name, unless it would shadow another module.

    It does not depend on the current folder: the fingerprint of a scorer begins with it.
    """
    own, other = path.stem, f"eval_file_{path.stem}"
    if not own.isidentifier() or own.startswith("_"):
        return other
    found = find_spec(own)
    free = found is None or (found.origin is not None and _is_same_path(path, found.origin))
    return own if free else other


def _build_import_error(error: BaseException, path: Path) -> ConfigError:
    shown = format_user_traceback(error, path)
    if isinstance(error, AssayError) and shown is not None:
        # The message is complete without a traceback; only the line is added.
        line = _find_last_line(error, path)
        return ConfigError(str(error), where=f"{path}:{line}")
    if shown is None:
        # A syntax error has no frame in the file; it names file and line itself.
        shown = "".join(traceback.format_exception_only(error)).rstrip()
    return ConfigError(f"the file cannot be imported\n{shown}", where=str(path))


def _find_last_line(error: BaseException, path: Path) -> int:
    line, frame = 0, error.__traceback__
    while frame is not None:
        if _is_same_path(path, frame.tb_frame.f_code.co_filename):
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


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
    hint = None
    if name != "dataset" and configs:
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
