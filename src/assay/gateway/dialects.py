"""The model APIs that agents may call, and how each writes requests, answers and errors."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from assay.errors import WireError
from assay.formats import (
    AnswerPart,
    AnswerWriter,
    ChatStream,
    ChatWriter,
    MessagesStream,
    MessagesWriter,
    ModelAnswer,
    ModelRequest,
    ResponsesStream,
    ResponsesWriter,
    StreamEvent,
    read_chat_conversation,
    read_chat_parts,
    read_chat_request,
    read_messages_conversation,
    read_messages_parts,
    read_messages_request,
    read_responses_conversation,
    read_responses_parts,
    read_responses_request,
    write_chat_answer,
    write_chat_error,
    write_chat_events,
    write_event,
    write_messages_answer,
    write_messages_error,
    write_messages_events,
    write_responses_answer,
    write_responses_error_event,
    write_responses_events,
)
from assay.types import Message


class AnswerStream(Protocol):
    """Assembles the events of a stream to one answer."""

    error: object

    @property
    def is_complete(self) -> bool:
        """Whether the model ended its answer."""

    def add(self, event: StreamEvent) -> None:
        """Add one event. Raises `WireError` if it is not one of this API."""

    def build_answer(self) -> dict[str, Any]:
        """Return the answer as the same request without streaming would return it."""


@dataclass(frozen=True)
class Dialect:
    """One API."""

    name: str
    """The name of its format, as in the extras of messages."""

    protocol: str
    """The protocol of the providers with the same API."""

    path: str
    """After the base URL, which ends with /v1."""

    list_field: str
    """The field of a request with the conversation."""

    setting_names: Mapping[str, str]
    """The names of an endpoint's settings in a request."""

    read_request: Callable[[Mapping[str, Any]], ModelRequest]
    read_conversation: Callable[[Mapping[str, Any]], list[Message]]
    write_answer: Callable[[ModelAnswer], dict[str, Any]]
    write_events: Callable[[Mapping[str, Any], Mapping[str, Any]], Iterator[bytes]]
    read_parts: Callable[[StreamEvent], Iterator[AnswerPart]]
    make_stream: Callable[[], AnswerStream]
    make_writer: Callable[..., AnswerWriter]
    write_error: Callable[[int, str, str | None], dict[str, Any]]
    write_error_event: Callable[[dict[str, Any]], bytes]


OPENAI_CHAT = Dialect(
    name="openai_chat",
    protocol="openai",
    path="/chat/completions",
    list_field="messages",
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_tokens",
        "stop": "stop",
        "reasoning_effort": "reasoning_effort",
        "seed": "seed",
    },
    read_request=read_chat_request,
    read_conversation=read_chat_conversation,
    write_answer=write_chat_answer,
    write_events=write_chat_events,
    read_parts=read_chat_parts,
    make_stream=ChatStream,
    make_writer=ChatWriter,
    write_error=write_chat_error,
    write_error_event=write_event,
)

OPENAI_RESPONSES = Dialect(
    name="openai_responses",
    protocol="openai-responses",
    path="/responses",
    list_field="input",
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning",
    },
    read_request=read_responses_request,
    read_conversation=read_responses_conversation,
    write_answer=write_responses_answer,
    write_events=write_responses_events,
    read_parts=read_responses_parts,
    make_stream=ResponsesStream,
    make_writer=ResponsesWriter,
    write_error=write_chat_error,
    write_error_event=write_responses_error_event,
)

ANTHROPIC = Dialect(
    name="anthropic",
    protocol="anthropic",
    path="/messages",
    list_field="messages",
    setting_names={
        "temperature": "temperature",
        "top_p": "top_p",
        "max_tokens": "max_tokens",
        "stop": "stop_sequences",
        "thinking": "thinking",
    },
    read_request=read_messages_request,
    read_conversation=read_messages_conversation,
    write_answer=write_messages_answer,
    write_events=write_messages_events,
    read_parts=read_messages_parts,
    make_stream=MessagesStream,
    make_writer=MessagesWriter,
    write_error=write_messages_error,
    write_error_event=partial(write_event, name="error"),
)

DIALECTS = (OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC)


def read_answer_message(dialect: Dialect, answer: Mapping[str, Any]) -> Message:
    """Read the message of an answer. Raises `WireError` if it has none."""
    items = answer.get("output")
    if dialect is ANTHROPIC:
        items = [{"role": "assistant", "content": answer.get("content")}]
    elif dialect is OPENAI_CHAT:
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        items = [first.get("message") if isinstance(first, dict) else None]
    messages = dialect.read_conversation({dialect.list_field: items})
    if not messages or messages[-1].role != "assistant":
        raise WireError("the answer has no message")
    return messages[-1]
