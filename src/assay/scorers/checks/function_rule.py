"""`python: module:function`: a check by a user's function."""

import inspect
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path

from assay.types import error_message

from ..call_spec import read_call_spec
from ..outcome import read_outcome
from ..user_modules import build_import_path
from .conversation import ConversationView
from .findings import CheckFinding, Rule, mark_unscored
from .yaml_node import Node, shorten_text

_FUNCTION_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def read_function_rule(check: Node) -> Rule:
    """Pass when the function returns a score of at least 1, or of `at_least`.

    Its parameters are filled by name: `sample`, `messages`, `response`, a field of the dataset
    row. It returns a bool, a number or an `EvaluateResult`. When it raises, the check is unscored.
    """
    given = check.at("python")
    least = 1.0
    if isinstance(given.value, dict):
        given.mapping(("function", "at_least"))
        if "function" not in given.value:
            raise given.wrong(
                "the key `function` is missing", hint="for example function: my_checks:polite"
            )
        least = at.number() if (at := given.get("at_least")) else 1.0
        given = given.at("function")
    function = _import_function(given)
    parameters = read_call_spec(function)

    def rule(reading: ConversationView) -> CheckFinding:
        sample = reading.sample
        try:
            result = read_outcome(function(**parameters.of(sample)), sample)
        except Exception as error:
            # User code may raise anything: the other checks and samples continue.
            text = " ".join(error_message(error).split())
            return mark_unscored(f"{type(error).__name__}: {shorten_text(text, 200)}")
        if result.reward is None:
            return mark_unscored(result.reason or "the function returned no valid score")
        reason = result.reason or f"{given.value} returned {result.reward:g}"
        return CheckFinding(result.reward >= least, reason, result.reward)

    return rule


def _import_function(given: Node) -> Callable[..., object]:
    name = given.text()
    if not _FUNCTION_REFERENCE.fullmatch(name):
        raise given.wrong(
            f"{name!r} is not of the form module:function", hint="for example my_checks:polite"
        )
    # Modules beside the check file are importable, as those beside an evaluation file are.
    sys.path[:] = build_import_path([Path(given.file).absolute().parent])
    try:
        function = pkgutil.resolve_name(name)
    except (Exception, SystemExit) as error:
        # A module may also call sys.exit() when it is imported.
        raise given.wrong(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}",
            hint="modules are searched beside the check file, then among installed packages",
        ) from error
    if not callable(function):
        raise given.wrong(f"{name!r} is a {type(function).__name__}, which cannot be called")
    if inspect.iscoroutinefunction(function):
        raise given.wrong(f"{name!r} is an async function", hint="use a synchronous function")
    found: Callable[..., object] = function
    return found
