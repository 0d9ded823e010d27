"""Environments that are asked for by a name, as on a command line."""

from collections.abc import Callable
from functools import partial

from assay.errors import ConfigError

from .builtin import BasicEnvironment, CalculatorEnvironment
from .environment import Environment
from .gym import GymEnvironment, registered

_NAMED: dict[str, Callable[[], Environment]] = {
    "basic": BasicEnvironment,
    "calculator": CalculatorEnvironment,
}


def environment_by_name(name: str) -> Callable[[], Environment]:
    """What makes a fresh environment of this name: `basic`, `calculator`, `gym:FrozenLake-v1`.

    Raises `ConfigError` for a name that stands for none.
    """
    kind, _, rest = name.partition(":")
    if kind == "gym" and rest:
        registered(rest)  # now, and not when the samples of a run ask for it one by one
        return partial(GymEnvironment, rest)
    if name in _NAMED:
        return _NAMED[name]
    known = ", ".join(map(repr, [*_NAMED, "gym:NAME"]))
    raise ConfigError(f"there is no environment {name!r}", hint=f"the names are {known}")
