"""Environments that come with assay, and the one to build tools on."""

import ast
import math
import operator
from collections.abc import Callable, Sequence

from assay.models import Message, ToolSpec

from .environment import Step
from .tools import Toolbox, ToolError, tool

_ANSWERED = Step(terminated=True, ended_by_agent=True)


class BasicEnvironment:
    """No tools and no rewards: the agent's first answer ends the episode."""

    tools: Sequence[ToolSpec] = ()

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return ()

    async def step(self, action: Message) -> Step:
        return _ANSWERED

    async def close(self) -> None:
        return None


class ToolEnvironment:
    """Methods marked with `@tool` are the tools; an answer without a call ends the episode."""

    def __init__(self) -> None:
        self._toolbox = Toolbox.of(self)

    @property
    def tools(self) -> Sequence[ToolSpec]:
        return self._toolbox.specs

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return ()

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return _ANSWERED
        return Step(replies=await self._toolbox.answer(action.tool_calls))

    async def close(self) -> None:
        return None


class CalculatorEnvironment(ToolEnvironment):
    """One tool that does arithmetic."""

    @tool
    def calculate(self, expression: str) -> str:
        """Work out an arithmetic expression.

        Args:
            expression: Numbers, + - * / // % **, brackets; for example "(2 + 3) * 4".
        """
        value = _value(_parsed(expression))
        return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_LONGEST = 500


def _parsed(expression: str) -> ast.expr:
    # The text comes from a model: it is walked, never evaluated as Python.
    if len(expression) > _LONGEST:
        raise ToolError(f"the expression is longer than {_LONGEST} characters")
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ToolError(f"{expression!r} is not an arithmetic expression") from error


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # Floats keep 9**9**9 from filling the memory with digits.
            return float(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _calculated(op, _value(left), _value(right))
    raise ToolError(f"only numbers and + - * / // % ** are allowed, not {ast.unparse(node)!r}")


def _calculated(op: ast.operator, left: float, right: float) -> float:
    try:
        value = _OPERATORS[type(op)](left, right)
    except (ZeroDivisionError, OverflowError) as error:
        raise ToolError(str(error)) from error
    if isinstance(value, complex) or not math.isfinite(value):
        raise ToolError("the result is not a finite real number")
    return value
