"""Import of user code by file, or by a `module:function` or `FILE.py:function` reference."""

import inspect
import os
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType

from assay.errors import AssayError, ConfigError

from .user_modules import build_import_path

_CODE_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


# The drive letter of `C:\\evals.py` is not a reference.
_FILE_REF = re.compile(r"(?s)(.+\.py):([^\W\d]\w*(?:\.[^\W\d]\w*)*)")


def is_code_name(text: str) -> bool:
    """Whether a text has the form `module:function`."""
    return _CODE_REF.fullmatch(text) is not None


def is_code_ref(text: str) -> bool:
    """Whether a text has the form `module:function` or `FILE.py:function`."""
    return is_code_name(text) or _FILE_REF.fullmatch(text) is not None


def find_ref_file(ref: str, folders: tuple[Path, ...]) -> Path | None:
    """Return the file of a `FILE.py:name` reference, in the first folder that has it, if any.

    None for a reference to a module.
    """
    match = _FILE_REF.fullmatch(ref)
    if match is None:
        return None
    paths = [folder / match[1] for folder in folders]
    return next((path for path in paths if path.is_file()), paths[0])


def import_code_ref(ref: str, *, where: str, folders: tuple[Path, ...] = ()) -> object:
    """Import the object of a `FILE.py:name` or `module:name` reference.

    Files and modules are looked for in `folders`, by default the current one. Their modules take
    precedence over installed ones.
    """
    path = find_ref_file(ref, folders or (Path(),))
    if path is None:
        return import_object(ref, folders=folders or (Path.cwd(),), where=where)
    if not path.is_file():
        raise ConfigError("the file does not exist", where=str(path))
    found: object = import_file(path)
    names = ref.rpartition(":")[2]
    for name in names.split("."):
        if not hasattr(found, name):
            own = [
                each
                for each, value in vars(found).items()
                if not each.startswith("_") and not isinstance(value, ModuleType)
            ]
            raise ConfigError(
                f"{path.name} does not define {names!r}",
                where=where,
                hint=f"it defines {', '.join(own) or 'nothing'}",
            )
        found = getattr(found, name)
    return found


def import_function(name: str, *, folders: tuple[Path, ...], where: str) -> Callable[..., object]:
    """Import the function `module:function`, which takes the sample.

    Modules in `folders` take precedence over installed ones. Raises `ConfigError` if the function
    cannot be imported or called.
    """
    function = import_object(name, folders=folders, where=where)
    if not callable(function):
        raise ConfigError(
            f"{name!r} is a {type(function).__name__}, which cannot be called", where=where
        )
    try:
        inspect.signature(function).bind(object())
    except TypeError as error:
        raise ConfigError(
            f"{name!r} cannot be called with a sample: {error}",
            where=where,
            hint="the function must take one argument, the Sample",
        ) from None
    except ValueError:
        pass  # some built-in functions have no signature
    found: Callable[..., object] = function
    return found


def import_object(name: str, *, folders: tuple[Path, ...], where: str) -> object:
    """Import a `module`, or an attribute of one by `module:attribute`."""
    # The folders come after Python's own modules: a `json.py` in them must not replace `json`.
    sys.path[:] = build_import_path(folders)
    try:
        return pkgutil.resolve_name(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # `BaseException`: a module may call sys.exit() on import.
        raise ConfigError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}",
            where=where,
            hint="check the name; modules are searched in the current folder or the manifest's, "
            "then among the installed ones",
        ) from error


def import_file(path: Path) -> ModuleType:
    """Import a user's file. Raises `ConfigError` with the user's own traceback."""
    main = sys.modules.get("__main__")
    if (script := getattr(main, "__file__", None)) and main and _is_same_path(path, script):
        # A script that names a function of its own must not run itself again.
        return main
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
        lines = [
            number
            for frame, number in traceback.walk_tb(error.__traceback__)
            if _is_same_path(path, frame.f_code.co_filename)
        ]
        return ConfigError(str(error), where=f"{path}:{lines[-1] if lines else 0}")
    if shown is None:
        # A syntax error has no frame in the file; it names file and line itself.
        shown = "".join(traceback.format_exception_only(error)).rstrip()
    return ConfigError(f"the file cannot be imported\n{shown}", where=str(path))


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
