"""Environments by name, as on a command line."""

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
    """Return a factory by name: `basic`, `calculator`, `gym:FrozenLake-v1`.

    Raises `ConfigError` for an unknown name.
    """
    kind, _, rest = name.partition(":")
    if kind == "gym" and rest:
        # An unknown name must fail here, not once per sample of a run.
        find_gym_creator(rest)
        return partial(GymEnvironment, rest)
    if name in _ENVIRONMENTS_BY_NAME:
        return _ENVIRONMENTS_BY_NAME[name]
    known = ", ".join(map(repr, [*_ENVIRONMENTS_BY_NAME, "gym:NAME"]))
    raise ConfigError(f"unknown environment {name!r}", hint=f"choose one of {known}")
