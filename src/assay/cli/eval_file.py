"""The user's file of `assay eval`: imported as the module it is, its mistakes shown as its own."""

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

_DATA_SUFFIXES = frozenset({".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".gz"})


@dataclass(frozen=True)
class EvalFile:
    """What a file defines."""

    path: Path
    config: EvalConfig
    dataset: Source | SampleStream
    name: str = "config"
    """What the configuration is called in the file."""


def load_eval_file(target: str) -> EvalFile:
    """Import `FILE.py` or `FILE.py:name` and take its configuration and its dataset.

    Raises `ConfigError` for whatever is wrong with the file, with the user's own traceback.
    """
    path, name = split_target(target)
    module = import_file(path)
    config = _read_eval_config(module, name, path)
    value = _read_eval_definition(module, "dataset", path)
    # Where the file is a link, its dataset may be beside what it links to.
    dataset = locate_dataset(value, path.parent, path.resolve().parent)
    return EvalFile(path, config, dataset, name)


def format_user_traceback(error: BaseException, path: Path) -> str | None:
    """The traceback within the user's file and those beside it; None if it never was there."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and not _is_same_path(path, frame.tb_frame.f_code.co_filename):
        frame = frame.tb_next
    if frame is None:
        return None
    told = traceback.TracebackException(type(error), error, frame)
    folder = os.path.abspath(path.parent) + os.sep
    ours = [os.path.abspath(each.filename).startswith(folder) for each in told.stack]
    last = max((place for place, own in enumerate(ours) if own), default=0)
    told.stack = traceback.StackSummary.from_list(told.stack[: last + 1])
    return "".join(told.format()).rstrip()


def _is_same_path(path: Path, filename: str) -> bool:
    return os.path.abspath(filename) == os.path.abspath(path)


def split_target(target: str) -> tuple[Path, str]:
    """The file of `FILE.py[:config]`, and the name of the configuration in it."""
    file, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        file, name = target, "config"
    path = Path(file)
    if path.suffix != ".py":
        raise ConfigError(
            "an evaluation is a Python file",
            where=target,
            hint="it defines `config`, an EvalConfig, and `dataset`: `assay eval my_eval.py`",
        )
    if not path.is_file():
        raise ConfigError("there is no such file", where=str(path))
    return path, name


def import_file(path: Path) -> ModuleType:
    """A user's file as a module. Raises `ConfigError` with the user's own traceback."""
    name = _choose_module_name(path)
    spec = spec_from_file_location(name, path.absolute())
    if spec is None or spec.loader is None:
        raise ConfigError("cannot be imported", where=str(path))
    folder = str(path.absolute().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = module_from_spec(spec)
    # Before it runs, as for any import: dataclasses and pickle look modules up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A file may also call sys.exit(), which is no Exception.
        del sys.modules[name]
        raise _build_import_error(error, path) from None
    return module


def _choose_module_name(path: Path) -> str:
    """The file's own name, unless it belongs to another module, which would be shadowed.

    The same wherever the command is started: the fingerprint of a scorer begins with it.
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
        # What went wrong is said well enough: only the line is missing.
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


def _read_eval_config(module: ModuleType, name: str, path: Path) -> EvalConfig:
    value = _read_eval_definition(module, name, path)
    if not isinstance(value, EvalConfig):
        raise ConfigError(
            f"`{name}` is a {type(value).__name__}, not an EvalConfig", where=str(path)
        )
    return value


def _read_eval_definition(module: ModuleType, name: str, path: Path) -> Any:
    if name in vars(module):
        return vars(module)[name]
    configs = [each for each, value in vars(module).items() if isinstance(value, EvalConfig)]
    hint = None
    if name != "dataset" and configs:
        hint = f"name the one to run: {path}:{configs[0]}"
    raise ConfigError(
        f"defines no `{name}`; it defines {', '.join(_list_own_names(module)) or 'nothing'}",
        where=str(path),
        hint=hint,
    )


def _list_own_names(module: ModuleType) -> list[str]:
    """What the file defines itself: neither modules nor the classes and functions it imported."""
    return [
        f"`{name}`"
        for name, value in vars(module).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
        # What has a name of its own is a class or a function; the rest are values.
        if not hasattr(value, "__qualname__") or value.__module__ == module.__name__
    ]


def locate_dataset(value: Any, *folders: Path) -> Source | SampleStream:
    """What a file names as its dataset; a path is meant from the first folder that has it."""
    if not isinstance(value, str | PathLike) or not os.fspath(value):
        dataset: Source | SampleStream = value
        return dataset
    name = os.fspath(value)
    beside = [folder / name for folder in folders]
    found = next((path for path in beside if os.path.exists(path)), None)
    # A name without a file here may still be a dataset's; one that looks like a file's is taken
    # for a file beside the evaluation, wherever the command was started.
    if found or isinstance(value, PathLike) or Path(name).suffix.lower() in _DATA_SUFFIXES:
        return found or beside[0]
    if os.path.exists(name):
        raise ConfigError(
            f"there is no {name!r} beside the file, but one in the current folder",
            where=str(beside[0]),
            hint="a path is meant from the file's folder; where the name is a dataset's, start the "
            "command in another folder",
        )
    return name
