"""What pytest sees of an evaluation test while it collects."""

import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from .decorator import ENDPOINT_ARGUMENT, EvalOptions

if TYPE_CHECKING:
    import pytest

_SCOPES = ("function", "class", "module", "package", "session")
_SAMPLE_PARAMETERS = frozenset({"messages", "ground_truth", "sample", "row"})


def build_visible_signature(
    options: EvalOptions, collector: "pytest.Collector", name: str
) -> inspect.Signature:
    """The parameters of the function that pytest fills: fixtures and parametrised arguments."""
    marks = [*getattr(options.function, "pytestmark", ()), *collector.iter_markers("parametrize")]
    parametrised = set(_list_parametrised_names(marks))
    parameters = list(options.signature.parameters.values())
    owner = collector.obj if isinstance(collector, pytest.Class) else None
    first = 0 if find_receiver_kind(owner, name) is None else 1
    kept = parameters[:first] + [
        parameter
        for parameter in parameters[first:]
        if parameter.name in parametrised or _is_fixture(parameter, options, collector)
    ]
    if options.endpoints and not options.groupwise:
        kept.append(inspect.Parameter(ENDPOINT_ARGUMENT, inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(sorted(kept, key=lambda parameter: parameter.kind))


def mark_for_asyncio(
    function: Callable[..., Any], collector: "pytest.Collector", signature: inspect.Signature
) -> None:
    """Have pytest-asyncio run a test that needs async fixtures, in any of its modes.

    In the loop of its fixtures, as far as they share one: where some live longer, in theirs.
    """
    marks = [*getattr(function, "pytestmark", ()), *collector.iter_markers()]
    if any(mark.name in ("asyncio", "anyio") for mark in marks):
        return
    fixtures = list(_find_async_fixtures(signature.parameters, collector, set()))
    if not fixtures:
        return
    try:
        usual = collector.config.getini("asyncio_default_fixture_loop_scope")
    except (KeyError, ValueError):
        pytest.mark.asyncio(function)  # a version of the plugin that has one loop for each test
        return
    scopes = {getattr(each.func, "_loop_scope", None) or usual or each.scope for each in fixtures}
    pytest.mark.asyncio(loop_scope=max(scopes, key=_SCOPES.index))(function)


def _find_async_fixtures(
    names: Iterable[str], collector: "pytest.Collector", seen: set[str]
) -> "Iterator[pytest.FixtureDef[Any]]":
    manager = collector.session._fixturemanager
    for name in names:
        if name in seen:
            continue
        seen.add(name)
        for definition in (manager.getfixturedefs(name, collector) or ())[-1:]:
            made = definition.func
            if inspect.iscoroutinefunction(made) or inspect.isasyncgenfunction(made):
                yield definition
            yield from _find_async_fixtures(definition.argnames, collector, seen)


def find_receiver_kind(owner: type | None, name: str) -> str | None:
    """What the first parameter of a test stands for: an `instance`, a `class`, or nothing."""
    if owner is None:
        return None
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, staticmethod):
        return None
    return "class" if isinstance(found, classmethod) else "instance"


def _is_fixture(
    parameter: inspect.Parameter, options: EvalOptions, collector: "pytest.Collector"
) -> bool:
    if parameter.name in _SAMPLE_PARAMETERS or parameter.default is not parameter.empty:
        return False
    if options.groupwise and parameter.name == "endpoints":
        return False
    if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
        return False
    manager = collector.session._fixturemanager
    return parameter.name == "request" or bool(manager.getfixturedefs(parameter.name, collector))


def _list_parametrised_names(marks: Iterable[Any]) -> Iterator[str]:
    for mark in marks:
        if mark.name == "parametrize":
            names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
            yield from names.replace(" ", "").split(",") if isinstance(names, str) else names


def name_endpoints(endpoints: Sequence[Any]) -> list[str]:
    """One name for each endpoint of a test, as the list of tests shows it; no two are equal."""
    names: list[str] = []
    for endpoint in endpoints:
        whole = isinstance(endpoint, str)
        name = endpoint if whole else f"{endpoint.provider}:{endpoint.model}"
        again = sum(each == name or each.startswith(f"{name}#") for each in names)
        names.append(f"{name}#{again + 1}" if again else name)
    return names


def check_item(item: "pytest.Item") -> None:
    """Raise `pytest.UsageError` for an evaluation that pytest would not run as one."""
    unittest = sys.modules.get("unittest")
    owner = getattr(item, "cls", None)
    if unittest is not None and owner is not None and issubclass(owner, unittest.TestCase):
        raise pytest.UsageError(
            f"{item.nodeid}: an evaluation cannot be a method of a unittest.TestCase; "
            "make it a function or a method of a plain class"
        )
