"""`python: module:function` or `python: FILE.py:function`: a check by a user's function."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationInfo

from assay.errors import ConfigError
from assay.types import InvalidValue, Sample, error_message, quote_value, reaches_threshold

from ..call_spec import CallSpec, read_call_spec
from ..import_ref import import_code_ref, is_code_ref
from ..outcome import read_outcome
from .check_entry import CheckEntry, CheckModel, Number, expand_short_form
from .conversation import ConversationView
from .findings import CheckFinding, cut_quote, mark_unscored


@dataclass(frozen=True)
class CheckFunction:
    """An imported function and the parameters that it is called with."""

    name: str
    function: Callable[..., object]
    parameters: CallSpec


def _import_function(name: Any, info: ValidationInfo) -> CheckFunction:
    if not isinstance(name, str) or not is_code_ref(name):
        raise InvalidValue(
            f"{quote_value(name)} is not of the form module:function or FILE.py:function",
            hint="for example my_checks:polite or my_checks.py:polite",
        )
    # Code beside the check file is found, as that beside an evaluation file is.
    folder = (info.context or {}).get("folder", Path.cwd())
    try:
        function = import_code_ref(name, folders=(folder,), where=name)
    except ConfigError as error:
        where = "" if error.where in (None, name) else f"{error.where}: "
        raise InvalidValue(
            f"{where}{error.message}",
            hint="files and modules are searched beside the check file, then among installed "
            "packages",
        ) from error
    if not callable(function):
        raise InvalidValue(f"{name!r} is a {type(function).__name__}, which cannot be called")
    if inspect.iscoroutinefunction(function):
        raise InvalidValue(f"{name!r} is an async function", hint="use a synchronous function")
    return CheckFunction(name, function, read_call_spec(function))


class FunctionThreshold(CheckModel):
    """A function and the lowest score that passes."""

    function: Annotated[CheckFunction, PlainValidator(_import_function)]
    at_least: Number = 1.0


class FunctionRule(CheckEntry):
    """Pass when the function returns a score of at least 1, or of `at_least`.

    Its parameters are filled by name: `sample`, `messages`, `response`, a field of the dataset
    row. It returns a bool, a number or an `EvaluateResult`. When it raises, the check is unscored.
    """

    python: Annotated[FunctionThreshold, expand_short_form("function")]

    def judge(self, reading: ConversationView) -> CheckFinding:
        return judge_by_function(
            self.python.function, reading.sample, at_least=self.python.at_least
        )


def judge_by_function(called: CheckFunction, sample: Sample, *, at_least: float) -> CheckFinding:
    """Call a function with a sample. It passes with a score of `at_least` or more."""
    try:
        result = read_outcome(called.function(**called.parameters.of(sample)))
    except Exception as error:
        # User code may raise anything: the other checks and samples continue.
        text = " ".join(error_message(error).split())
        return mark_unscored(f"{type(error).__name__}: {cut_quote(text, 200)}")
    if result.reward is None:
        return mark_unscored(result.reason or "the function returned no valid score")
    reason = result.reason or f"{called.name} returned {result.reward:g}"
    return CheckFinding(reaches_threshold(result.reward, at_least), reason, result.reward)
