"""Reads lists of messages: the first message with a mark of its own decides the format."""

from collections.abc import Callable, Mapping
from itertools import groupby
from typing import Any

from assay.errors import WireError
from assay.types import Message, Usage

from .conversion import Dropped
from .foreign_content import drop_unreadable
from .langchain import is_langchain_message, read_langchain_messages
from .openai_responses import RESPONSES_PARTS, is_responses_item, read_responses_items
from .provider_turns import read_anthropic_turns, read_chat_messages, read_gemini_contents
from .pydantic_ai import is_pydantic_ai_message, read_pydantic_ai_messages
from .smolagents import is_smolagents_step, read_smolagents_steps
from .token_usage import add_usage, read_token_usage

_Turns = Callable[[list[Any]], list[Message]]

_ANTHROPIC_BLOCKS = frozenset(
    {
        *("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use"),
        *("web_search_tool_result", "web_fetch_tool_result", "code_execution_tool_result"),
    }
)


def classify_message(value: object) -> str | None:
    """Return the format of one message: `openai_chat` if any other one would fit as well."""
    if isinstance(value, Message):
        return "assay"
    if not isinstance(value, Mapping):
        return None
    if is_pydantic_ai_message(value):
        return "pydantic_ai"
    if isinstance(value.get("parts"), list):
        return "gemini"
    if is_langchain_message(value):
        return "langchain"
    if is_responses_item(value):
        return "openai_responses"
    if is_smolagents_step(value):
        return "smolagents"
    if "role" not in value:
        return None
    content = value.get("content")
    listed = content if isinstance(content, list) else []
    parts = [part for part in listed if isinstance(part, Mapping)]
    kinds = {str(part.get("type")) for part in parts}
    if not kinds.isdisjoint(RESPONSES_PARTS):
        return "openai_responses"
    # Images and documents of Anthropic have a source.
    if not kinds.isdisjoint(_ANTHROPIC_BLOCKS) or any(
        isinstance(part.get("source"), Mapping) for part in parts
    ):
        return "anthropic"
    if value.get("type") == "message":
        blocks = isinstance(content, list) and "status" not in value
        return "anthropic" if blocks else "openai_responses"
    return "openai_chat"


def read_message_list(
    values: list[Any], dropped: list[Dropped]
) -> tuple[str, list[Message], Usage | None]:
    """Return the format of a list with at least one message, its messages, and their usage."""
    found = (classify_message(value) for value in values)
    marked = (name for name in found if name not in (None, "assay", "openai_chat"))
    name = next(marked, "openai_chat")
    read: list[Message] = []
    usage = None
    foreign = False
    # A prompt of our own may be continued in another format.
    for is_own, group in groupby(values, lambda value: isinstance(value, Message)):
        run = list(group)
        foreign = foreign or not is_own
        messages, more = (run, None) if is_own else read_messages(run, name, dropped)
        read += messages
        usage = add_usage(usage, more)
    return name if foreign else "assay", read, usage


def read_messages(
    values: list[Any], name: str, dropped: list[Dropped]
) -> tuple[list[Message], Usage | None]:
    """Read messages of the format `name`; those that cannot be read are reported as dropped."""
    if name == "langchain":
        return read_langchain_messages(values, dropped)
    if name == "pydantic_ai":
        return read_pydantic_ai_messages(values, dropped)
    if name == "openai_responses":
        return read_responses_items(values, dropped), None
    if name == "smolagents":
        usage = None
        for step in values:
            if isinstance(step, Mapping):
                usage = add_usage(usage, read_token_usage(step.get("token_usage")))
        return read_smolagents_steps(values, dropped), usage
    if name == "openai_chat":
        return _read_each(values, None, dropped), None
    read = read_anthropic_turns if name == "anthropic" else read_gemini_contents
    # All at once, since these readers mark where turns of one role meet. One invalid turn refuses
    # the whole list, so the turns are then read one by one.
    try:
        return read(values), None
    except WireError:
        return _read_each(values, read, dropped), None


def _read_each(values: list[Any], read: _Turns | None, dropped: list[Dropped]) -> list[Message]:
    messages: list[Message] = []
    for index, value in enumerate(values):
        where = f"messages[{index}]"
        notes: list[Dropped] = []
        # Turns of Anthropic have no system role, but agents write such messages among them.
        system = isinstance(value, Mapping) and value.get("role") in ("system", "developer")
        try:
            if read is None or system:
                messages += read_chat_messages([value], notes)
            else:
                messages += read([value])
            dropped += [Dropped(f"{where}.{note.where}", note.what) for note in notes]
        except WireError as error:
            drop_unreadable(error, where, dropped)
    return messages
