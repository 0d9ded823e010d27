"""The built-in environments and their names, and the base class for environments with tools."""

import ast
import inspect
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial

from assay.errors import ConfigError
from assay.registry import find_plugin, list_names
from assay.types import Message, ToolSpec

from .environment import Environment, Step
from .gym import GymEnvironment, find_gym_creator
from .tools import Toolbox, ToolError, quote_briefly, tool

_FINAL_STEP = Step(terminated=True, ended_by_agent=True)


class BasicEnvironment:
    """No tools and no rewards: the agent's first answer ends the episode."""

    tools: Sequence[ToolSpec] = ()

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        return ()

    async def step(self, action: Message) -> Step:
        return _FINAL_STEP

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
            return _FINAL_STEP
        return Step(replies=await self._toolbox.answer(action.tool_calls))

    async def close(self) -> None:
        return None


class CalculatorEnvironment(ToolEnvironment):
    """One tool that does arithmetic. Whole numbers stay exact."""

    @tool
    def calculate(self, expression: str) -> str:
        """Work out an arithmetic expression.

        Args:
            expression: Numbers, + - * / // % **, brackets; for example "(2 + 3) * 4".
        """
        if len(expression) > _MAX_EXPRESSION_CHARS:
            raise ToolError(f"the expression is longer than {_MAX_EXPRESSION_CHARS} characters")
        # The text comes from a model: its syntax tree is walked, never passed to `eval`.
        try:
            tree = ast.parse(expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ToolError(
                f"{quote_briefly(expression)} is not an arithmetic expression"
            ) from error
        try:
            value = _evaluate_node(tree, expression)
        except ZeroDivisionError as error:
            raise ToolError("division by zero") from error
        except OverflowError as error:
            raise ToolError("the result is too large") from error
        except RecursionError as error:
            raise ToolError("the expression is nested too deeply") from error
        # Above 2**53 a float no longer represents every integer: its digits would be invented.
        whole = isinstance(value, int) or (value.is_integer() and abs(value) < 2**53)
        return str(int(value)) if whole else repr(value)


_MAX_EXPRESSION_CHARS = 500
# About 1200 digits: without a limit, a few operators could fill the memory.
_MAX_INTEGER_BITS = 4096


def _evaluate_node(node: ast.expr, expression: str) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _check_magnitude(number)
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_evaluate_node(operand, expression))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            values = _evaluate_node(left, expression), _evaluate_node(right, expression)
            return _check_magnitude(_OPERATORS[type(op)](*values))
    part = ast.get_source_segment(expression.strip(), node) or expression
    raise ToolError(f"only numbers and + - * / // % ** are allowed, not {quote_briefly(part)}")


def _check_magnitude(value: float) -> float:
    # The power of a negative number with a fraction is complex.
    if isinstance(value, complex):
        raise ToolError("the result is not a real number")
    large = (
        value.bit_length() > _MAX_INTEGER_BITS
        if isinstance(value, int)
        else not math.isfinite(value)
    )
    if large:
        raise OverflowError
    return value


def _divide(left: float, right: float) -> float:
    # Exact division stays exact: as floats, large integers would lose digits.
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return left / right


def _raise_to_power(left: float, right: float) -> float:
    whole = isinstance(left, int) and isinstance(right, int) and abs(left) > 1
    # Checked before computing: the digits of 9**9**9 would fill the memory.
    if whole and right * int(left).bit_length() > _MAX_INTEGER_BITS:
        raise OverflowError
    value: float = left**right
    return value


_OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: _divide,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _raise_to_power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}

_ENVIRONMENTS_BY_NAME: dict[str, Callable[[], Environment]] = {
    "basic": BasicEnvironment,
    "calculator": CalculatorEnvironment,
}
ENVIRONMENT_NAMES = (*_ENVIRONMENTS_BY_NAME, "gym")
"""The names that plug-ins cannot use."""


def environment_by_name(name: str) -> Callable[[], Environment]:
    """Return a factory by name: `basic`, `calculator`, `gym:FrozenLake-v1`.

    Raises `ConfigError` for an unknown name.
    """
    kind, _, rest = name.partition(":")
    if kind == "gym" and rest:
        # An unknown name must fail here, not once per sample of a run.
        find_gym_creator(rest)
        return partial(GymEnvironment, rest)
    if name in _ENVIRONMENTS_BY_NAME:
        return _ENVIRONMENTS_BY_NAME[name]
    names = list_names("assay.environments", [*_ENVIRONMENTS_BY_NAME, "gym:NAME"])
    known = ", ".join(map(repr, names))
    raise ConfigError(f"unknown environment {name!r}", hint=f"choose one of {known}")


def find_environment_plugin(name: str) -> Callable[..., Environment] | None:
    """Return the factory that a plug-in registers: a class or function, with or without a sample.

    Of `NAME:SETTINGS`, the text of the settings is its first argument. None if `name` is not the
    name of a plug-in. Raises `ConfigError` for a plug-in that is something else.
    """
    kind, colon, settings = name.partition(":")
    if kind in ENVIRONMENT_NAMES:
        return None
    plugin = find_plugin("assay.environments", kind)
    if plugin is None:
        return None
    if not callable(plugin.value):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the environment is of type `{kind}`, not a class or a function")
    if not colon:
        return plugin.value
    try:
        inspect.signature(plugin.value).bind_partial(settings)
    except ValueError:
        pass  # some built-in classes have no readable signature
    except TypeError:
        raise plugin.build_error("the environment takes no settings") from None
    return partial(plugin.value, settings)
