"""Environments that are asked for by a name, as on a command line."""

from collections.abc import Callable
from functools import partial

from assay.errors import ConfigError

from .builtin import BasicEnvironment, CalculatorEnvironment
from .environment import Environment
from .gym import GymEnvironment, find_gym_creator

_ENVIRONMENTS_BY_NAME: dict[str, Callable[[], Environment]] = {
    "basic": BasicEnvironment,
    "calculator": CalculatorEnvironment,
}


def environment_by_name(name: str) -> Callable[[], Environment]:
    """What makes a fresh environment of this name: `basic`, `calculator`, `gym:FrozenLake-v1`.

    Raises `ConfigError` for a name that stands for none.
    """
    kind, _, rest = name.partition(":")
    if kind == "gym" and rest:
        find_gym_creator(rest)  # now, and not when the samples of a run ask for it one by one
        return partial(GymEnvironment, rest)
    if name in _ENVIRONMENTS_BY_NAME:
        return _ENVIRONMENTS_BY_NAME[name]
    known = ", ".join(map(repr, [*_ENVIRONMENTS_BY_NAME, "gym:NAME"]))
    raise ConfigError(f"there is no environment {name!r}", hint=f"the names are {known}")
