"""Rules about tool calls: which tools, in which order, with which arguments."""

from dataclasses import replace
from typing import Any

from .conditions import Condition, quote_json, read_condition
from .conversation import ConversationView, RecordedCall
from .findings import CheckFinding, Rule, cut_excerpt, mark_unscored
from .json_paths import JsonPath, parse_json_path
from .targets import read_scope
from .yaml_node import Node

_MAX_CALLS_SHOWN = 12


def read_tool_called(check: Node) -> Rule:
    """Pass when each named tool was called, at least `at_least` and at most `at_most` times."""
    given = check.at("tool_called")
    least, most = 1, None
    if isinstance(given.value, dict):
        given.mapping(("tool", "at_least", "at_most"))
        if "tool" not in given.value:
            raise given.wrong(
                "the key `tool` is missing", hint="for example {tool: read, at_least: 2}"
            )
        names = given.at("tool").texts()
        least = at.whole_number(lowest=1) if (at := given.get("at_least")) else 1
        most = at.whole_number(lowest=least) if (at := given.get("at_most")) else None
    else:
        names = given.texts()
    scope = read_scope(check)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        reasons = []
        for name in names:
            calls = replace(scope, tool=name).calls(reading)
            reason = _describe_times(name, calls)
            if len(calls) < least or (most is not None and len(calls) > most):
                wanted = f"at least {least}" if len(calls) < least else f"at most {most}"
                others = "" if calls else f"; {_describe_calls(scope.calls(reading))}"
                return CheckFinding(False, f"{reason}, {wanted} wanted{others}")
            reasons.append(reason)
        return CheckFinding(True, "; ".join(reasons))

    return rule


def read_tool_not_called(check: Node) -> Rule:
    """Pass when none of the named tools was called."""
    names = check.at("tool_not_called").texts()
    scope = read_scope(check)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        for call in scope.calls(reading):
            if call.name in names:
                return CheckFinding(False, f"{call.place} calls {_describe_call(call)}")
        calls = _format_tool_calls(scope.calls(reading))
        return CheckFinding(True, f"{calls}, none to these tools")

    return rule


def read_tool_order(check: Node) -> Rule:
    """Pass when the tools were called in this order; `exact` allows no other calls."""
    given = check.at("tool_order")
    exact = False
    listed = given
    if isinstance(given.value, dict):
        given.mapping(("tools", "exact"))
        if "tools" not in given.value:
            raise given.wrong("the key `tools` is missing", hint="for example tools: [read, edit]")
        listed = given.at("tools")
        exact = at.flag() if (at := given.get("exact")) else False
    names = [each.text() for each in listed.items()]
    scope = read_scope(check)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        calls = scope.calls(reading)
        if not exact:
            return _check_order(names, calls)
        if [call.name for call in calls] == names:
            return CheckFinding(True, f"exactly these {len(names)} calls were made")
        expected = ", ".join(map(repr, names))
        return CheckFinding(False, f"not exactly {expected}; {_describe_calls(calls)}")

    return rule


def _check_order(names: list[str], calls: list[RecordedCall]) -> CheckFinding:
    places: list[str] = []
    # One iterator for all names: each search continues after the call that the last one found.
    remaining = iter(calls)
    for name in names:
        found = next((call for call in remaining if call.name == name), None)
        if found is None:
            after = f" after {names[len(places) - 1]!r} in {places[-1]}" if places else ""
            return CheckFinding(False, f"no call of {name!r}{after}; {_describe_calls(calls)}")
        places.append(found.place)
    steps = ", ".join(f"{name!r} in {place}" for name, place in zip(names, places, strict=True))
    return CheckFinding(True, steps)


def read_tool_args_match(check: Node) -> Rule:
    """Pass when a call of the tool has arguments that meet all conditions."""
    given = check.at("tool_args_match")
    given.mapping(("tool", "args", "of"))
    for key in ("tool", "args"):
        if key not in given.value:
            raise given.wrong(
                f"the key `{key}` is missing",
                hint="for example {tool: bash, args: {command: ls}}",
            )
    name = given.at("tool").text()
    conditions = _read_argument_conditions(given.at("args"))
    every = (of := given.get("of")) is not None and of.one_of(("any", "every")) == "every"
    scope = replace(read_scope(check), tool=name)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        calls = scope.calls(reading)
        if not calls:
            return CheckFinding(
                False, f"no call{scope.words}; {_describe_calls(reading.list_calls(scope.agents))}"
            )
        first: tuple[bool, str] | None = None
        for call in calls:
            problem = _find_argument_problem(call, conditions)
            outcome = (
                problem is None,
                f"{call.place} calls {_describe_call(call)}: {problem or 'matches'}",
            )
            if outcome[0] is not every:
                return CheckFinding(*outcome)
            first = first or outcome
        assert first is not None  # there is a call
        more = f"; the same of {len(calls) - 1} more" if len(calls) > 1 else ""
        return CheckFinding(first[0], first[1] + more)

    return rule


def _read_argument_conditions(given: Node) -> list[tuple[JsonPath, Condition]]:
    if not given.mapping():
        raise given.wrong("`args` is empty", hint="for example {command: {matches: ^ls}}")
    found = []
    for name in given.value:
        if name.startswith("$"):
            path = parse_json_path(Node(name, given.file, (*given.place, name), given.lines))
        else:
            path = JsonPath(name, (name,), (False,))
        found.append((path, read_condition(given.at(name))))
    return found


def _find_argument_problem(
    call: RecordedCall, conditions: list[tuple[JsonPath, Condition]]
) -> str | None:
    if call.asked.malformed:
        return "its arguments are not a JSON object"
    for path, condition in conditions:
        found: list[tuple[str, Any]] = path.find(call.asked.arguments)
        if not found:
            return f"the argument {path.source!r} is missing"
        problems = [condition.problem(value) for _, value in found]
        if None not in problems:
            return f"{path.source!r} {problems[0]}"
    return None


def read_max_tools(check: Node) -> Rule:
    """Pass when at most so many calls were made, of any tool or of one."""
    most = check.at("max_tools").whole_number(lowest=0)
    scope = read_scope(check)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        calls = scope.calls(reading)
        over = (
            ""
            if len(calls) <= most
            else f"; number {most + 1} is {_describe_call_place(calls[most])}"
        )
        return CheckFinding(
            len(calls) <= most, f"{_format_tool_calls(calls)}, at most {most} allowed{over}"
        )

    return rule


def read_no_tool_errors(check: Node) -> Rule:
    """Pass when every call was answered and no answer is marked as an error.

    A record that does not show whether the tool failed is unscored, unless `unmarked` is `pass`.
    """
    given = check.at("no_tool_errors")
    lenient = False
    if isinstance(given.value, dict):
        given.mapping(("unmarked",))
        at = given.get("unmarked")
        lenient = at is not None and at.one_of(("pass", "not_judged")) == "pass"
    elif not given.flag():
        raise given.wrong("the value is false, which checks nothing", hint="remove the check")
    scope = read_scope(check)

    def rule(reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(scope.agents):
            return mark_unscored(why)
        calls = scope.calls(reading)
        failed = [call for call in calls if call.failed]
        if failed:
            more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
            first = (
                f"{_describe_call_place(failed[0])} failed: {cut_excerpt(failed[0].error or '')}"
            )
            return CheckFinding(False, first + more)
        unmarked = [call for call in calls if not call.marked]
        if unmarked and not lenient:
            where = (
                f"{len(unmarked)} of {_format_tool_calls(calls)}, "
                f"the first {_describe_call_place(unmarked[0])}"
            )
            return mark_unscored(f"the record does not show whether tools failed: {where}")
        return CheckFinding(True, f"{_format_tool_calls(calls)}, none failed")

    return rule


def _describe_times(name: str, calls: list[RecordedCall]) -> str:
    if not calls:
        return f"{name!r} was not called"
    if len(calls) == 1:
        return f"{name!r} was called once, in {calls[0].place}"
    return f"{name!r} was called {len(calls)} times, first in {calls[0].place}"


def _format_tool_calls(calls: list[RecordedCall]) -> str:
    return "1 call" if len(calls) == 1 else f"{len(calls)} calls"


def _describe_call_place(call: RecordedCall) -> str:
    return f"{call.name!r:.80} in {call.place}"


def _describe_call(call: RecordedCall) -> str:
    return f"{call.name!r:.80} with {quote_json(call.asked.arguments_text)}"


def _describe_calls(calls: list[RecordedCall]) -> str:
    if not calls:
        return "no tool was called"
    names = ", ".join(f"{call.name!r:.80}" for call in calls[:_MAX_CALLS_SHOWN])
    more = f" and {len(calls) - _MAX_CALLS_SHOWN} more" if len(calls) > _MAX_CALLS_SHOWN else ""
    return f"tools called: {names}{more}"
