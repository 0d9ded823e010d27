"""Rules of plug-ins: `RULE: VALUE` in a check file calls a function of an installed package."""

import inspect
from collections.abc import Callable
from typing import Any

from assay.errors import AssayError, ConfigError
from assay.registry import find_plugin
from assay.types import InvalidValue, error_message

from ..call_spec import read_call_spec
from .check_entry import MAX_CHECK_NAME, CheckEntry
from .conversation import ConversationView
from .findings import CheckFinding
from .function_rule import CheckFunction, judge_by_function


class PluginRule(CheckEntry):
    """Pass when the function that the plug-in returned for the value scores at least 1."""

    function: CheckFunction

    def judge(self, reading: ConversationView) -> CheckFinding:
        return judge_by_function(self.function, reading.sample, at_least=1.0)


def find_check_rule(name: str) -> Callable[..., object]:
    """Return the plug-in of a rule: a function from the value in the check file to a scorer.

    Raises `ConfigError` if it is missing, or not a function.
    """
    plugin = find_plugin("assay.check_rules", name)
    if plugin is None:
        raise ConfigError(f"no plug-in for checks is named {name!r}")
    if not callable(plugin.value):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the rule is of type `{kind}`, not a function")
    return plugin.value


def build_plugin_rule(rule: str, entry: dict[str, Any], context: Any) -> PluginRule:
    """Build the check of an entry. Raises `InvalidValue` if the plug-in refuses the value."""
    try:
        function: Any = find_check_rule(rule)(entry[rule])
    except AssayError as error:
        raise InvalidValue(error.message, hint=error.hint, place=(rule,)) from error
    except Exception as error:
        text = f"`{rule}` refuses its value: {type(error).__name__}: {error_message(error)}"
        raise InvalidValue(text, place=(rule,)) from error
    if not callable(function) or inspect.iscoroutinefunction(function):
        kind = "an async function" if callable(function) else f"a {type(function).__name__}"
        raise InvalidValue(f"the plug-in of `{rule}` returned {kind}, not a scorer", place=(rule,))
    others = {key: value for key, value in entry.items() if key != rule}
    called = CheckFunction(rule, function, read_call_spec(function))
    return PluginRule.model_validate(
        {"name": rule[:MAX_CHECK_NAME], **others, "function": called}, context=context
    )
