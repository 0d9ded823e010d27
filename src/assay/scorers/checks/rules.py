"""The model of a check file, and the table of rules."""

from typing import Annotated, Any, get_args

from pydantic import (
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
)

from assay.registry import list_plugin_names
from assay.types import InvalidValue, quote_value, suggest_name

from .check_entry import MAX_CHECK_NAME, CheckEntry, CheckModel
from .function_rule import FunctionRule
from .plugin_rule import build_plugin_rule
from .spending_rules import MaxCost, MaxTokens, MaxTurns
from .text_rules import (
    Contains,
    Equals,
    JsonPathRule,
    JsonSchemaRule,
    Matches,
    NotContains,
    NotMatches,
    NumberRule,
    TextRule,
)
from .tool_rules import MaxTools, NoToolErrors, ToolArgsMatch, ToolCalled, ToolNotCalled, ToolOrder

# Every check is a metric of every result, which the store keeps.
_MAX_CHECKS = 1000

AnyRule = (
    Matches
    | NotMatches
    | Contains
    | NotContains
    | Equals
    | JsonPathRule
    | JsonSchemaRule
    | NumberRule
    | ToolCalled
    | ToolNotCalled
    | ToolOrder
    | ToolArgsMatch
    | MaxTools
    | NoToolErrors
    | MaxTurns
    | MaxTokens
    | MaxCost
    | FunctionRule
)
# The first field that a class adds to its base is the key that selects it.
RULES: dict[str, type[CheckEntry]] = {
    next(iter(each.__annotations__)): each for each in get_args(AnyRule)
}


def _validate_check(
    entry: Any, _try_each: ValidatorFunctionWrapHandler, info: ValidationInfo
) -> CheckEntry:
    # Selects the model by its rule: a plain union would report the errors of all members.
    if not isinstance(entry, dict):
        raise InvalidValue(f"the value is {quote_value(entry)}, not a mapping")
    rule = _find_rule_name(entry)
    allowed = RULES[rule].model_fields if rule in RULES else (rule, *CheckEntry.model_fields)
    for key in entry:
        if key not in allowed:
            hint = suggest_name(key, allowed)
            raise InvalidValue(f"`{key}` is not allowed with `{rule}`", hint=hint, place=(key,))
    if rule not in RULES:
        return build_plugin_rule(rule, entry, info.context)
    name = rule
    if issubclass(RULES[rule], TextRule):
        name = f"{entry.get('target', 'response')} {rule}"
    elif rule.startswith("tool_") and isinstance(entry[rule], str):
        name = f"{rule} {entry[rule]}"
    return RULES[rule].model_validate(
        {"name": name[:MAX_CHECK_NAME], **entry}, context=info.context
    )


def _find_rule_name(entry: dict[str, Any]) -> str:
    own = (*RULES, *TextRule.model_fields)
    further = [key for key in entry if key not in own]
    plugins = list_plugin_names("assay.check_rules") if further else []
    named = [key for key in entry if key in RULES or (key in further and key in plugins)]
    if len(named) > 1:
        raise InvalidValue(
            f"the check has more than one rule: {' and '.join(named)}",
            hint="write a separate check for each rule",
            place=(named[1],),
        )
    if named:
        return named[0]
    if further:
        hint = suggest_name(further[0], (*own, *plugins))
        raise InvalidValue(f"unknown rule {further[0]!r}", hint=hint, place=(further[0],))
    raise InvalidValue("the check has no rule", hint=f"rules are {', '.join(RULES)}")


class CheckFile(CheckModel):
    """The checks of a file."""

    checks: Annotated[
        tuple[Annotated[AnyRule, WrapValidator(_validate_check)], ...],
        Field(min_length=1, max_length=_MAX_CHECKS),
    ]

    @field_validator("checks")
    @classmethod
    def _give_one_score(cls, checks: tuple[CheckEntry, ...]) -> tuple[CheckEntry, ...]:
        names: set[str] = set()
        for position, check in enumerate(checks):
            if check.name in names:
                raise InvalidValue(
                    f"another check is named {check.name!r}",
                    hint="add a unique `name` to the check",
                    place=(position,),
                )
            names.add(check.name)
        if not any(check.decides for check in checks):
            raise InvalidValue("every check has weight 0, so the checks give no score")
        if all(check.weight is None for check in checks):
            return checks
        # `EvaluateResult` averages weighted metrics only. A check without a weight next to
        # weighted ones gets 1, or it would silently not count.
        return tuple(
            check.model_copy(update={"weight": 1.0}) if check.weight is None else check
            for check in checks
        )
