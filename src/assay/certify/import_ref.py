"""Import of user code by a `module:function` reference."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path

from assay.errors import ConfigError
from assay.scorers import build_import_path

_CODE_REF = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_code_name(text: str) -> bool:
    """Whether a text has the form `module:function`."""
    return _CODE_REF.fullmatch(text) is not None


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
            hint="modules are searched in the manifest's folder, then among the installed ones",
        ) from error
