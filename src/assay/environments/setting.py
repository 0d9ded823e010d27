"""The `environment` setting of evaluations and trainings: its values and its older names."""

import inspect
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

from assay.errors import ConfigError
from assay.types import Sample

from .builtin import BasicEnvironment, environment_by_name, find_environment_plugin
from .environment import Environment

EnvironmentLike = Callable[[Sample], Environment] | Callable[[], Environment] | str
"""A factory that takes the sample, a class or function that takes nothing, or a name."""

EnvironmentFactory = Callable[[Sample], Environment]

_Target = TypeVar("_Target", bound=Callable[..., Any])


def build_environment_factory(
    environment: EnvironmentLike | None, *, where: str
) -> EnvironmentFactory:
    """Return a function from a sample to a new environment. None is the name `basic`.

    Raises `ConfigError` for an unknown name, and for an object that cannot be called with a sample
    or with nothing.
    """
    if environment is None:
        return _IgnoringSample(BasicEnvironment)
    if isinstance(environment, str):
        plugin = find_environment_plugin(environment)
        if plugin is None:
            return _IgnoringSample(environment_by_name(environment))
        where, environment = f"{where}: environment {environment!r}", plugin
    if not callable(environment):
        raise ConfigError(f"environment={environment!r} is not callable", where=where)
    if inspect.iscoroutinefunction(environment):
        raise ConfigError("`environment` is async; only a scorer can be awaited", where=where)
    factory: Callable[..., Environment] = environment
    arguments = (object(),) if _takes_sample(factory) else ()
    try:
        inspect.signature(factory).bind(*arguments)
    except ValueError:
        pass  # some built-in classes have no readable signature
    except TypeError as error:
        raise ConfigError(
            f"`environment` cannot be called with a sample: {error}",
            where=where,
            hint="the function must take one argument, the Sample, or none",
        ) from None
    return factory if arguments else _IgnoringSample(factory)


@dataclass(frozen=True)
class _IgnoringSample:
    """A factory of environments that are the same for every sample. Can be pickled."""

    make: Callable[[], Environment]

    def __call__(self, sample: Sample) -> Environment:
        return self.make()


def _takes_sample(factory: Callable[..., object]) -> bool:
    is_class = isinstance(factory, type)
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:
        return not is_class
    first = next((each for each in parameters if each.kind is not each.KEYWORD_ONLY), None)
    if first is None or first.kind is first.VAR_KEYWORD:
        return False
    if first.kind is first.VAR_POSITIONAL:
        return not is_class  # a wrapper that passes its arguments on
    # An optional argument is a setting such as `size=4`, unless a function names it `sample`.
    return first.default is first.empty or (first.name == "sample" and not is_class)


def accept_environment_alias(alias: str) -> Callable[[_Target], _Target]:
    """Let a function, or the constructor of a class, accept `environment` as `alias` too."""

    def decorate(target: _Target) -> _Target:
        if isinstance(target, type):
            target.__init__ = _rename_argument(target.__init__, alias, target.__name__)  # type: ignore[misc]  # the constructor
            return target
        return _rename_argument(target, alias, f"{target.__name__}()")

    return decorate


def _rename_argument(function: _Target, alias: str, where: str) -> _Target:
    @wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if alias not in named:
            return function(*arguments, **named)
        given = inspect.signature(function).bind_partial(*arguments).arguments | named
        rename_environment(given, alias, where=where)
        return function(**given)

    return call  # type: ignore[return-value]  # the same parameters


def rename_environment(settings: MutableMapping[str, Any], alias: str, *, where: str) -> None:
    """Rename the setting `alias` to `environment`. Raises `ConfigError` if both are given."""
    value, environment = settings.pop(alias, None), settings.get("environment")
    if value is not None and environment is not None:
        raise ConfigError(
            f"both `environment` and `{alias}` are given",
            where=where,
            hint=f"remove `{alias}`: it is another name of `environment`",
        )
    settings["environment"] = environment if value is None else value
