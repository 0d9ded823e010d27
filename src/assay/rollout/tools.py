"""Python functions as tools: the schema a model is told, and calls answered in words."""

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_json

from assay.errors import ConfigError
from assay.models import Message, ToolCall, ToolSpec

Function = TypeVar("Function", bound=Callable[..., Any])


class ToolError(Exception):
    """Raise inside a tool to answer the agent in words: its mistake, not a fault."""


def tool(function: Function) -> Function:
    """Mark a function or a method as a tool.

    The schema comes from the signature, the descriptions from the docstring (its first paragraph,
    and an `Args:` section or `:param name:` lines).
    """
    describe(function)  # a signature that cannot become a schema fails where it is written
    function.__assay_tool__ = True  # type: ignore[attr-defined]  # the mark itself
    return function


@dataclass(frozen=True, slots=True)
class _Description:
    spec: ToolSpec
    arguments: type[BaseModel]


@cache
def describe(function: Callable[..., Any]) -> _Description:
    """The schema of a tool, and the model that checks its arguments."""
    name = function.__name__
    summary, notes = _read_docstring(inspect.getdoc(function) or "")
    fields: dict[str, Any] = {}
    hints = get_type_hints(function, include_extras=True)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ConfigError(
                f"takes {parameter}; a tool's parameters must have names",
                where=f"tool `{name}`",
            )
        if parameter.name not in hints:
            raise ConfigError(f"parameter `{parameter.name}` has no type", where=f"tool `{name}`")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (
            hints[parameter.name],
            Field(default, description=notes.get(parameter.name)),
        )
    arguments = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for entry in schema.get("properties", {}).values():
        entry.pop("title", None)
    schema.setdefault("properties", {})
    return _Description(ToolSpec(name=name, description=summary, parameters=schema), arguments)


_PARAM = re.compile(r"^:param\s+(?:\S+\s+)?(?P<name>\w+):\s*(?P<note>.+)$", re.M)
_SECTION = re.compile(r"^(?:Args|Arguments|Parameters):\n(?P<lines>(?:[ \t]+.*\n?)+)", re.M)
_ENTRY = re.compile(
    r"^(?P<indent>[ \t]+)(?P<name>\w+)(?:\s*\([^)]*\))?:\s*"
    r"(?P<note>.*(?:\n(?P=indent)[ \t]+.*)*)",
    re.M,
)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and what is said about each parameter."""
    summary = " ".join(text.split("\n\n")[0].split())
    entries = [*_PARAM.finditer(text)]
    if section := _SECTION.search(text):
        entries += _ENTRY.finditer(section["lines"])
    return summary, {entry["name"]: " ".join(entry["note"].split()) for entry in entries}


class Toolbox:
    """Named tools that answer a message's calls: concurrently, with results in call order."""

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions: Mapping[str, Callable[..., Any]] = {
            function.__name__: function for function in functions
        }
        if len(self._functions) != len(functions):
            names = sorted(function.__name__ for function in functions)
            raise ConfigError(f"two tools have one name: {names}", where="tools")
        self._described = {
            name: describe(getattr(function, "__func__", function))
            for name, function in self._functions.items()
        }
        self.specs = tuple(described.spec for described in self._described.values())

    @classmethod
    def of(cls, owner: object) -> "Toolbox":
        """The methods of `owner` that are marked as tools, in the order they were written."""
        names = dict.fromkeys(
            name
            for kind in reversed(type(owner).__mro__)
            for name, member in vars(kind).items()
            if getattr(member, "__assay_tool__", False)
        )
        return cls([getattr(owner, name) for name in names])

    async def answer(self, calls: Sequence[ToolCall]) -> tuple[Message, ...]:
        """One message for each call, in the order of the calls."""
        if len(calls) == 1:
            return (await self._answer(calls[0]),)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer(call)) for call in calls]
        except ExceptionGroup as several:
            raise several.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    async def _answer(self, call: ToolCall) -> Message:
        details = None
        try:
            content = _as_text(await self._run(call))
        except ToolError as mistake:
            content, details = f"Error: {mistake}", {"failed": True}
        return Message(
            role="tool", content=content, tool_call_id=call.id, name=call.name, details=details
        )

    async def _run(self, call: ToolCall) -> object:
        if call.name not in self._functions:
            raise ToolError(f"there is no tool {call.name!r}; the tools are {self._names()}")
        if call.malformed:
            raise ToolError(
                f"the arguments of {call.name!r} are not a JSON object: {call.raw_arguments!r}"
            )
        arguments = self._checked(call)
        result = self._functions[call.name](**arguments)
        return await result if inspect.isawaitable(result) else result

    def _checked(self, call: ToolCall) -> dict[str, Any]:
        try:
            checked = self._described[call.name].arguments.model_validate(call.arguments)
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}"
                for problem in error.errors(include_url=False, include_input=False)
            )
            raise ToolError(f"wrong arguments for {call.name!r}: {problems}") from error
        return {name: getattr(checked, name) for name in type(checked).model_fields}

    def _names(self) -> str:
        return ", ".join(map(repr, self._functions)) or "none"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return value
    try:
        return to_json(value).decode()
    except PydanticSerializationError:
        return str(value)
