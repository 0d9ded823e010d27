"""Rules about tool calls: which tools, in which order, with which arguments."""

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, StrictBool, model_validator

from assay.types import InvalidValue

from .check_entry import (
    CheckEntry,
    CheckModel,
    Given,
    Text,
    Texts,
    WholeNumber,
    expand_short_form,
)
from .conditions import ConditionOrValue, quote_json
from .conversation import AgentScope, AnsweredCall, ConversationView
from .findings import CheckFinding, combine_findings, cut_excerpt, mark_unscored
from .json_paths import JsonPath, parse_json_path
from .targets import Scope, Turn

_MAX_CALLS_SHOWN = 12


class ToolRule(CheckEntry):
    """A rule about the calls in a turn, or in the whole conversation."""

    turn: Given[Turn] = None
    scope: AgentScope = "all"

    @cached_property
    def limits(self) -> Scope:
        return Scope(self.turn, None, self.scope)

    def judge(self, reading: ConversationView) -> CheckFinding:
        if why := reading.explain_unscored(self.scope):
            return mark_unscored(why)
        return self.judge_calls(self.limits.calls(reading), reading)

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        """Apply the rule to the calls within the limits."""
        raise NotImplementedError


class ToolCount(CheckModel):
    """How often each of some tools must be called."""

    tool: Texts
    at_least: Annotated[WholeNumber, Field(ge=1)] = 1
    at_most: Given[WholeNumber] = None

    @model_validator(mode="after")
    def _bounds_are_ascending(self) -> Self:
        if self.at_most is not None and self.at_most < self.at_least:
            raise InvalidValue(f"{self.at_most} is below {self.at_least}", place=("at_most",))
        return self


class ToolCalled(ToolRule):
    """Pass when each named tool was called, at least `at_least` and at most `at_most` times."""

    tool_called: Annotated[ToolCount, expand_short_form("tool")]

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        least, most = self.tool_called.at_least, self.tool_called.at_most
        reasons = []
        for name in self.tool_called.tool:
            own = [call for call in calls if call.name == name]
            times = "once, in" if len(own) == 1 else f"{len(own)} times, first in"
            reason = f"{name!r} was {f'called {times} {own[0].place}' if own else 'not called'}"
            if len(own) < least or (most is not None and len(own) > most):
                wanted = f"at least {least}" if len(own) < least else f"at most {most}"
                others = "" if own else f"; {_describe_calls(calls)}"
                return CheckFinding(False, f"{reason}, {wanted} wanted{others}")
            reasons.append(reason)
        return CheckFinding(True, "; ".join(reasons))


class ToolNotCalled(ToolRule):
    """Pass when none of the named tools was called."""

    tool_not_called: Texts

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        for call in calls:
            if call.name in self.tool_not_called:
                return CheckFinding(False, f"{call.place} calls {_describe_call(call)}")
        return CheckFinding(True, f"{_format_tool_calls(calls)}, none to these tools")


class CallOrder(CheckModel):
    """Tools in their order; `exact` allows no other calls."""

    tools: Annotated[tuple[Text, ...], Field(min_length=1)]
    exact: StrictBool = False


class ToolOrder(ToolRule):
    """Pass when the tools were called in this order."""

    tool_order: Annotated[CallOrder, expand_short_form("tools")]

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        names = self.tool_order.tools
        if self.tool_order.exact:
            if tuple(call.name for call in calls) == names:
                return CheckFinding(True, f"exactly these {len(names)} calls were made")
            expected = ", ".join(map(repr, names))
            return CheckFinding(False, f"not exactly {expected}; {_describe_calls(calls)}")
        places: list[str] = []
        # One iterator for all names: each search continues after the call that the last one found.
        remaining = iter(calls)
        for name in names:
            found = next((call for call in remaining if call.name == name), None)
            if found is None:
                after = f" after {names[len(places) - 1]!r} in {places[-1]}" if places else ""
                return CheckFinding(False, f"no call of {name!r}{after}; {_describe_calls(calls)}")
            places.append(found.place)
        steps = (f"{name!r} in {place}" for name, place in zip(names, places, strict=True))
        return CheckFinding(True, ", ".join(steps))


def parse_argument_path(name: str) -> JsonPath:
    """Parse the name of an argument, or a path into the arguments."""
    return parse_json_path(name) if name.startswith("$") else JsonPath(name, (name,), (False,))


class ArgumentConditions(CheckModel):
    """The conditions on the arguments of a tool's calls, by name or path."""

    tool: Text
    args: Annotated[
        dict[Annotated[JsonPath, PlainValidator(parse_argument_path)], ConditionOrValue],
        Field(min_length=1),
    ]
    of: Literal["any", "every"] = "any"
    """Whether one call must meet them, or all of them."""


class ToolArgsMatch(ToolRule):
    """Pass when a call of the tool has arguments that meet all conditions."""

    tool_args_match: ArgumentConditions

    @cached_property
    def limits(self) -> Scope:
        return Scope(self.turn, self.tool_args_match.tool, self.scope)

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        if not calls:
            others = _describe_calls(reading.list_calls(self.scope))
            return CheckFinding(False, f"no call{self.limits.words}; {others}")
        every = self.tool_args_match.of == "every"
        return combine_findings(map(self._judge_call, calls), every=every)

    def _judge_call(self, call: AnsweredCall) -> CheckFinding:
        problem = "its arguments are not a JSON object" if call.asked.malformed else None
        for path, condition in () if problem else self.tool_args_match.args.items():
            values = path.find(call.asked.arguments)
            missed = [condition.problem(value) for _, value in values]
            if not values:
                problem = f"the argument {path.source!r} is missing"
            elif None not in missed:
                problem = f"{path.source!r} {missed[0]}"
            if problem:
                break
        reason = f"{call.place} calls {_describe_call(call)}: {problem or 'matches'}"
        return CheckFinding(problem is None, reason)


class OneToolRule(ToolRule):
    """A rule about the calls of any tool, or of one."""

    tool: Given[Text] = None

    @cached_property
    def limits(self) -> Scope:
        return Scope(self.turn, self.tool, self.scope)


class MaxTools(OneToolRule):
    """Pass when at most so many calls were made."""

    max_tools: Annotated[WholeNumber, Field(ge=0)]

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        most, over = self.max_tools, ""
        if len(calls) > most:
            over = f"; number {most + 1} is {_describe_call_place(calls[most])}"
        reason = f"{_format_tool_calls(calls)}, at most {most} allowed{over}"
        return CheckFinding(len(calls) <= most, reason)


class UnmarkedCalls(CheckModel):
    """The outcome for calls whose record does not show whether they failed."""

    unmarked: Literal["pass", "not_judged"] = "not_judged"


def _expand_true(value: Any) -> Any:
    if value is False:
        raise InvalidValue("the value is false, which checks nothing", hint="remove the check")
    return {} if value is True else value


class NoToolErrors(OneToolRule):
    """Pass when every call was answered and no answer is marked as an error.

    A record that does not show whether the tool failed is unscored, unless `unmarked` is `pass`.
    """

    no_tool_errors: Annotated[UnmarkedCalls, BeforeValidator(_expand_true)]

    def judge_calls(self, calls: list[AnsweredCall], reading: ConversationView) -> CheckFinding:
        failed = [call for call in calls if call.failed]
        if failed:
            more = f"; and {len(failed) - 1} more" if len(failed) > 1 else ""
            error = cut_excerpt(failed[0].error or "")
            return CheckFinding(False, f"{_describe_call_place(failed[0])} failed: {error}{more}")
        unmarked = [call for call in calls if not call.marked]
        if unmarked and self.no_tool_errors.unmarked == "not_judged":
            where = (
                f"{len(unmarked)} of {_format_tool_calls(calls)}, "
                f"the first {_describe_call_place(unmarked[0])}"
            )
            return mark_unscored(f"the record does not show whether tools failed: {where}")
        return CheckFinding(True, f"{_format_tool_calls(calls)}, none failed")


def _format_tool_calls(calls: list[AnsweredCall]) -> str:
    return "1 call" if len(calls) == 1 else f"{len(calls)} calls"


def _describe_call_place(call: AnsweredCall) -> str:
    return f"{call.name!r:.80} in {call.place}"


def _describe_call(call: AnsweredCall) -> str:
    return f"{call.name!r:.80} with {quote_json(call.asked.arguments_text)}"


def _describe_calls(calls: list[AnsweredCall]) -> str:
    if not calls:
        return "no tool was called"
    names = ", ".join(f"{call.name!r:.80}" for call in calls[:_MAX_CALLS_SHOWN])
    more = f" and {len(calls) - _MAX_CALLS_SHOWN} more" if len(calls) > _MAX_CALLS_SHOWN else ""
    return f"tools called: {names}{more}"
