"""How pytest collects an evaluation test: its signature, markers and endpoint ids."""

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from .decorator import ENDPOINT_ARGUMENT, EvalOptions, eval_options_of

_SCOPES = ("function", "class", "module", "package", "session")
_VARIADIC = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
_SAMPLE_PARAMETERS = frozenset({"messages", "ground_truth", "sample", "row"})


def build_visible_signature(
    options: EvalOptions, collector: "pytest.Collector", name: str
) -> inspect.Signature:
    """Return the parameters that pytest fills: fixtures and parametrised arguments."""
    parametrised: set[str] = set()
    own_marks = getattr(options.function, "pytestmark", ())
    for mark in (*own_marks, *collector.iter_markers("parametrize")):
        if mark.name == "parametrize":
            names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
            split = names.replace(" ", "").split(",") if isinstance(names, str) else names
            parametrised.update(split)
    parameters = list(options.signature.parameters.values())
    owner = collector.obj if isinstance(collector, pytest.Class) else None
    first = 0 if find_receiver_kind(owner, name) is None else 1
    kept = parameters[:first]
    manager = collector.session._fixturemanager
    # A fixture may have the name of one of these; in an evaluation they come from the sample.
    of_sample = _SAMPLE_PARAMETERS | ({"endpoints"} if options.groupwise else set())
    for each in parameters[first:]:
        is_required = each.default is each.empty and each.kind not in _VARIADIC
        if each.name in parametrised or (
            is_required
            and each.name not in of_sample
            and (each.name == "request" or manager.getfixturedefs(each.name, collector))
        ):
            kept.append(each)
    if options.endpoints and not options.groupwise:
        kept.append(inspect.Parameter(ENDPOINT_ARGUMENT, inspect.Parameter.KEYWORD_ONLY))
    # The endpoint is keyword-only: a signature must have its parameters in the order of kinds.
    return inspect.Signature(sorted(kept, key=lambda parameter: parameter.kind))


def mark_for_asyncio(
    function: Callable[..., Any], collector: "pytest.Collector", signature: inspect.Signature
) -> None:
    """Mark a test that needs async fixtures for pytest-asyncio, in any of its modes.

    It runs in the loop of its fixtures; where they use several, in the one that lives longest.
    """
    marks = [*getattr(function, "pytestmark", ()), *collector.iter_markers()]
    if any(mark.name in ("asyncio", "anyio") for mark in marks):
        return
    manager = collector.session._fixturemanager
    fixtures: list[pytest.FixtureDef[Any]] = []
    left, seen = list(signature.parameters), set[str]()
    # Fixtures use other fixtures: one async fixture behind them all is enough.
    while left:
        if (name := left.pop()) in seen:
            continue
        seen.add(name)
        for definition in (manager.getfixturedefs(name, collector) or ())[-1:]:
            made = definition.func
            if inspect.iscoroutinefunction(made) or inspect.isasyncgenfunction(made):
                fixtures.append(definition)
            left += definition.argnames
    if not fixtures:
        return
    try:
        usual = collector.config.getini("asyncio_default_fixture_loop_scope")
    except (KeyError, ValueError):
        # Versions before 0.24 have one loop for each test, and no such setting.
        pytest.mark.asyncio(function)
        return
    scopes = {getattr(each.func, "_loop_scope", None) or usual or each.scope for each in fixtures}
    pytest.mark.asyncio(loop_scope=max(scopes, key=_SCOPES.index))(function)


def find_receiver_kind(owner: type | None, name: str) -> str | None:
    """Return what the first parameter of a test receives: `instance`, `class`, or None."""
    if owner is None:
        return None
    # Not getattr: it would unwrap staticmethod and classmethod.
    found = inspect.getattr_static(owner, name, None)
    if isinstance(found, staticmethod):
        return None
    return "class" if isinstance(found, classmethod) else "instance"


def name_endpoints(endpoints: Sequence[Any]) -> list[str]:
    """Return a unique name for each endpoint of a test, for its test id."""
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
    function = getattr(item, "function", None)
    options = eval_options_of(function)
    # `functools.wraps` copies the options to the wrapper, which the evaluation would not call.
    if options is not None and options.function is not function:
        raise pytest.UsageError(
            f"{item.nodeid}: a decorator above @evaluation_test has no effect; use a fixture, or "
            "put it below"
        )
