"""`module:function`: a user's code by its name, imported before anything is run."""

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
    """The function that `module:function` names; it takes the sample.

    Modules are looked for in `folders`, before those that are installed. Raises `ConfigError` for
    one that cannot be imported or called.
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
            hint="it takes one argument, the Sample",
        ) from None
    except ValueError:
        pass  # built-in functions do not always tell their signature
    found: Callable[..., object] = function
    return found


def import_object(name: str, *, folders: tuple[Path, ...], where: str) -> object:
    """What a name such as `module` or `module:function` stands for."""
    # Behind the standard library: a `json.py` beside the manifest is not that of Python.
    sys.path[:] = build_import_path(folders)
    try:
        return pkgutil.resolve_name(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A module may also call sys.exit() when it is imported.
        raise ConfigError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}",
            where=where,
            hint="the module is looked for beside the manifest, then among those installed",
        ) from error
