"""Python functions as tools: their schema, and the answers to their calls."""

import asyncio
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic_core import PydanticSerializationError, to_json

from assay.errors import ConfigError, EnvironmentFault
from assay.types import Message, ToolCall, ToolSpec, error_message

ToolFunction = TypeVar("ToolFunction", bound=Callable[..., Any])


class ToolError(Exception):
    """Raise inside a tool to answer a mistake of the agent with a message."""


def tool(function: ToolFunction) -> ToolFunction:
    """Mark a function or a method as a tool.

    The schema comes from the signature, the descriptions from the docstring (its first paragraph,
    and an `Args:` section or `:param name:` lines) or from `Field(description=...)`.

    A plain function blocks the event loop while it runs. A tool that waits for something should be
    an `async def`, or use `asyncio.to_thread`.
    """
    # A staticmethod or a classmethod wraps its function.
    inner: Any = getattr(function, "__func__", function)
    # An invalid signature should fail at its definition, not at the first call.
    describe_tool(inner)
    inner.__assay_tool__ = True
    return function


@dataclass(frozen=True, slots=True)
class _ToolDescription:
    spec: ToolSpec
    arguments: type[BaseModel]
    parameters: Mapping[str, str]
    """The function's parameter for each field of `arguments`."""


@cache
def describe_tool(function: Callable[..., Any]) -> _ToolDescription:
    """Return the schema of a tool, and the model that validates its arguments."""
    where = f"tool `{function.__name__}`"
    text = inspect.getdoc(function) or ""
    entries = [*_PARAM.finditer(text)]
    if section := _SECTION.search(text):
        entries += _ENTRY.finditer(section["lines"])
    notes = {entry["name"]: " ".join(entry["note"].split()) for entry in entries}
    given = _list_tool_parameters(function, where)
    types = _resolve_parameter_types(function, given, where)
    # Generated field names: a parameter may be called `schema` or `model_config`.
    parameters = {f"argument_{index}": each.name for index, each in enumerate(given)}
    fields: dict[str, Any] = {}
    for field, each in zip(parameters, given, strict=True):
        if each.name not in types:
            raise ConfigError(f"parameter `{each.name}` has no type annotation", where=where)
        default = ... if each.default is each.empty else each.default
        # Even `description=None` would replace the description of a `Field` in the annotation.
        note: Any = {"description": notes[each.name]} if notes.get(each.name) else {}
        fields[field] = Annotated[types[each.name], Field(alias=each.name, **note)], default
    try:
        arguments = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        schema = arguments.model_json_schema()
    except PydanticUserError as error:
        raise ConfigError(error.message, where=where) from error
    schema.pop("title", None)
    for entry in schema.setdefault("properties", {}).values():
        entry.pop("title", None)
    summary = " ".join(_AFTER_SUMMARY.split(text, maxsplit=1)[0].split())
    spec = ToolSpec(name=function.__name__, description=summary, parameters=schema)
    return _ToolDescription(spec, arguments, parameters)


def _list_tool_parameters(function: Callable[..., Any], where: str) -> list[inspect.Parameter]:
    """Return the parameters of a tool without `self` or `cls`."""
    found = list(inspect.signature(function).parameters.values())
    if found and (
        found[0].name == "self"
        or (found[0].name == "cls" and found[0].annotation is inspect.Parameter.empty)
    ):
        del found[0]
    for each in found:
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise ConfigError(
                f"the tool takes {each}, but its parameters must have names", where=where
            )
        if each.kind is each.POSITIONAL_ONLY:
            raise ConfigError(
                f"parameter `{each.name}` is positional-only",
                where=where,
                hint="remove the `/` from the signature",
            )
    return found


def _resolve_parameter_types(
    function: Callable[..., Any], parameters: Sequence[inspect.Parameter], where: str
) -> dict[str, Any]:
    # Not the return type: it is not needed, and may not be resolvable yet.
    written = {
        each.name: each.annotation for each in parameters if each.annotation is not each.empty
    }
    known = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return get_type_hints(
            SimpleNamespace(__annotations__=written), globalns=known, include_extras=True
        )
    except NameError as error:
        raise ConfigError(
            f"the type of a parameter cannot be resolved: {error}",
            where=where,
            hint="define or import the type above the tool, outside of `if TYPE_CHECKING`",
        ) from error


_PARAM = re.compile(
    r"^:param[ \t]+(?:[^:\n]*[ \t])?(?P<name>\w+):[ \t]*(?P<note>.*(?:\n[ \t]+\S.*)*)", re.M
)
_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters):[ \t]*\n(?P<lines>(?:[ \t]+.*\n?|\n)+)", re.M
)
_ENTRY = re.compile(
    r"^(?P<indent>[ \t]+)(?P<name>\w+)(?:\s*\(.*?\))?:[ \t]*"
    r"(?P<note>.*(?:\n(?:[ \t]*\n)*(?P=indent)[ \t]+.*)*)",
    re.M,
)
_AFTER_SUMMARY = re.compile(
    r"^[ \t]*$|^(?:Args|Arguments|Parameters|Returns|Raises):[ \t]*$|^:\w[^:\n]*:", re.M
)


class Toolbox:
    """Named tools that answer the calls of a message.

    Async tools run concurrently; results keep the order of the calls.
    """

    def __init__(self, functions: Sequence[Callable[..., Any]]) -> None:
        self._functions: Mapping[str, Callable[..., Any]] = {
            function.__name__: function for function in functions
        }
        if len(self._functions) != len(functions):
            names = sorted(function.__name__ for function in functions)
            raise ConfigError(f"two tools have the same name: {names}", where="tools")
        self._described = {
            name: describe_tool(getattr(function, "__func__", function))
            for name, function in self._functions.items()
        }
        self.specs = tuple(described.spec for described in self._described.values())

    @classmethod
    def of(cls, owner: object) -> "Toolbox":
        """Collect the methods of `owner` that are marked as tools, in definition order."""
        names = _list_tool_names(type(owner))  # type: ignore[arg-type]  # mypy takes a class for unhashable
        return cls([getattr(owner, name) for name in names])

    async def answer(self, calls: Sequence[ToolCall]) -> tuple[Message, ...]:
        """Answer each call with one message, in the order of the calls."""
        if len(calls) == 1:
            return (await self._answer_call(calls[0]),)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._answer_call(call)) for call in calls]
        except ExceptionGroup as several:
            # Callers expect a single error; the group has cancelled the other calls.
            first = several.exceptions[0]
            raise first from first.__cause__
        return tuple(task.result() for task in tasks)

    async def _answer_call(self, call: ToolCall) -> Message:
        details = None
        try:
            content = await self._run(call)
        except ToolError as mistake:
            content, details = f"Error: {error_message(mistake)}", {"failed": True}
        except SystemExit as ended:
            # SystemExit would pass through the event loop and silently end all other rollouts.
            raise EnvironmentFault(
                f"the tool {call.name!r} called sys.exit({ended.code!r})"
            ) from ended
        except asyncio.CancelledError as cancelled:
            # Either this rollout is cancelled, or the tool awaited something that was.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise EnvironmentFault(
                f"an operation that the tool {call.name!r} awaited was cancelled"
            ) from cancelled
        return Message(
            role="tool", content=content, tool_call_id=call.id, name=call.name, details=details
        )

    async def _run(self, call: ToolCall) -> str:
        if call.name not in self._functions:
            names = ", ".join(map(repr, self._functions)) or "none"
            raise ToolError(f"unknown tool {quote_briefly(call.name)}; the tools are {names}")
        if call.malformed:
            raise ToolError(describe_malformed_call(call))
        described = self._described[call.name]
        try:
            checked = described.arguments.model_validate(call.arguments)
        except ValidationError as error:
            problems = "; ".join(
                f"{_shorten_echo(path or 'arguments')}: {problem['msg']}"
                for problem in error.errors(include_url=False, include_input=False)
                for path in [".".join(map(str, problem["loc"]))]
            )
            raise ToolError(f"invalid arguments for {call.name!r}: {problems}") from error
        # Not `model_dump`: a parameter that is a model must arrive as one.
        arguments = {name: getattr(checked, field) for field, name in described.parameters.items()}
        result = self._functions[call.name](**arguments)
        value = await result if inspect.isawaitable(result) else result
        if isinstance(value, str):
            return value
        try:
            return to_json(value).decode()
        except PydanticSerializationError:
            return str(value)


@cache
def _list_tool_names(owner: type) -> Sequence[str]:
    names = dict.fromkeys(
        name
        for kind in reversed(owner.__mro__)
        for name, member in vars(kind).items()
        if getattr(getattr(member, "__func__", member), "__assay_tool__", False)
    )
    return tuple(names)


def describe_malformed_call(call: ToolCall) -> str:
    """Return the message for the agent about malformed arguments."""
    return (
        f"the arguments of {call.name!r} are not a JSON object: {quote_briefly(call.raw_arguments)}"
    )


def quote_briefly(value: object) -> str:
    """Quote a value of a model in an answer to it, shortened to its beginning."""
    return _shorten_echo(repr(value))


_MAX_ECHO_CHARS = 200


def _shorten_echo(text: str) -> str:
    if len(text) <= _MAX_ECHO_CHARS:
        return text
    return f"{text[:_MAX_ECHO_CHARS]}… ({len(text)} characters)"
