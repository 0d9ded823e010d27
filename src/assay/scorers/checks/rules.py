"""The table of rules, and the reader of the entries of a check file."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from assay.types import suggest_name

from .findings import Rule
from .function_rule import read_function_rule
from .spending_rules import read_max_cost, read_max_tokens, read_max_turns
from .text_rules import TEXT_KEYS, TEXT_RULES, read_text_rule
from .tool_rules import (
    read_max_tools,
    read_no_tool_errors,
    read_tool_args_match,
    read_tool_called,
    read_tool_not_called,
    read_tool_order,
)
from .yaml_node import Node

# Every check is a metric of every result, which the store keeps.
_MAX_CHECKS = 1000
_MAX_CHECK_NAME = 100
_CHECK_KEYS = ("name", "weight")
_SCOPE_KEYS = ("turn", "scope")

RuleReader = Callable[[Node], Rule]

RULES: dict[str, tuple[RuleReader, tuple[str, ...]]] = {
    **{name: (partial(read_text_rule, name), TEXT_KEYS) for name in TEXT_RULES},
    "tool_called": (read_tool_called, _SCOPE_KEYS),
    "tool_not_called": (read_tool_not_called, _SCOPE_KEYS),
    "tool_order": (read_tool_order, _SCOPE_KEYS),
    "tool_args_match": (read_tool_args_match, _SCOPE_KEYS),
    "max_tools": (read_max_tools, ("tool", *_SCOPE_KEYS)),
    "no_tool_errors": (read_no_tool_errors, ("tool", *_SCOPE_KEYS)),
    "max_turns": (read_max_turns, ()),
    "max_tokens": (read_max_tokens, ("scope",)),
    "max_cost": (read_max_cost, ("scope",)),
    "python": (read_function_rule, ()),
}
"""Each rule with its reader and the further keys that it allows."""


@dataclass(frozen=True)
class WeightedRule:
    """One rule with its name and its weight in the score."""

    name: str
    rule: Rule
    weight: float | None

    @property
    def decides(self) -> bool:
        """False for a check that is only tracked."""
        return self.weight != 0


def read_checks(given: Node) -> tuple[WeightedRule, ...]:
    """Read every check of a file. Raises `ConfigError` for the first invalid one."""
    given.mapping(("checks",))
    if "checks" not in given.value:
        raise given.wrong("the key `checks` is missing", hint="add `checks:` with a list of checks")
    entries = list(given.at("checks").items())
    if len(entries) > _MAX_CHECKS:
        raise given.at("checks").wrong(f"the list contains more than {_MAX_CHECKS} checks")
    weighted = any(isinstance(each.value, dict) and "weight" in each.value for each in entries)
    checks: dict[str, WeightedRule] = {}
    for entry in entries:
        check = _read_check(entry, weighted=weighted)
        if check.name in checks:
            spot = entry.get("name") or entry
            raise spot.wrong(
                f"another check is named {check.name!r}", hint="add a unique `name` to the check"
            )
        checks[check.name] = check
    if not any(check.decides for check in checks.values()):
        raise given.at("checks").wrong("every check has weight 0, so the checks give no score")
    return tuple(checks.values())


def _read_check(entry: Node, *, weighted: bool) -> WeightedRule:
    entry.mapping()
    rule = _find_rule_name(entry)
    read, beside = RULES[rule]
    allowed = (rule, *_CHECK_KEYS, *beside)
    for key in entry.value:
        if key not in allowed:
            raise entry.at(key).wrong(
                f"`{key}` is not allowed with `{rule}`", hint=suggest_name(key, allowed)
            )
    name = entry.get("name")
    text = _build_check_name(rule, entry) if name is None else name.text()
    if name is not None and len(text) > _MAX_CHECK_NAME:
        raise name.wrong(f"the name is longer than {_MAX_CHECK_NAME} characters")
    weight = entry.get("weight")
    # `EvaluateResult` averages weighted metrics only. A check without a weight next to weighted
    # ones gets 1, or it would silently not count.
    share = weight.number(lowest=0) if weight is not None else 1.0 if weighted else None
    return WeightedRule(text, read(entry), share)


def _find_rule_name(entry: Node) -> str:
    named: list[str] = [key for key in entry.value if key in RULES]
    if len(named) > 1:
        raise entry.at(named[1]).wrong(
            f"the check has more than one rule: {' and '.join(named)}",
            hint="write a separate check for each rule",
        )
    if named:
        return named[0]
    known = (*RULES, *_CHECK_KEYS, *TEXT_KEYS)
    for key in entry.value:
        if key not in known:
            raise entry.at(key).wrong(f"unknown rule {key!r}", hint=suggest_name(key, known))
    raise entry.wrong("the check has no rule", hint=f"rules are {', '.join(RULES)}")


def _build_check_name(rule: str, entry: Node) -> str:
    about = entry.value[rule]
    if rule in TEXT_RULES:
        return f"{entry.value.get('target', 'response')} {rule}"
    if rule.startswith("tool_") and isinstance(about, str):
        return f"{rule} {about}"[:_MAX_CHECK_NAME]
    return rule
