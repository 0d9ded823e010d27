"""Converts the return value of a user's agent to messages, whatever format it has.

The first format that fits is taken, in this order:

1. text; a `Message`, a `Trajectory` or a list with messages of our own
2. results of runs by their methods: openai-agents (`to_input_list`), pydantic-ai (`all_messages`)
3. whole responses: OpenAI chat (`choices`), OpenAI Responses (`output` items), Gemini
   (`candidates`, `contents`), a smolagents result (`steps`)
4. a conversation under `messages` (LangGraph's state and others), or one message under `message`
5. a message or a list of them. The first message with a mark of its own decides for the list:
   pydantic-ai (`kind` and `parts`), Gemini (`parts`), LangChain (`type: "ai"`), Responses
   (`type: "function_call"`), smolagents (`step_number`), Anthropic (blocks such as `tool_use`);
   otherwise OpenAI chat
6. an object with a text under one of `ANSWER_KEYS`, in their order
7. any other number, boolean, list or object, written as JSON text

Objects of libraries count as the objects of their fields. An element of a list that cannot be read
is dropped and reported; an error is raised only if nothing can be read.
"""

from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_core import from_json

from assay.errors import WireError
from assay.types import Message, Sample, Trajectory, Usage

from .conversion import Dropped
from .foreign_content import (
    build_message,
    build_text,
    drop_fields,
    drop_unreadable,
    write_answer_text,
)
from .gemini import from_gemini
from .message_lists import classify_message, read_message_list, read_messages
from .openai_responses import read_responses_items
from .plain_values import has_method, read_attribute, simplify
from .pydantic_ai import read_pydantic_ai_messages
from .smolagents import is_smolagents_result, read_smolagents_steps
from .token_usage import read_token_usage

ANSWER_KEYS = ("answer", "output", "response", "text", "content", "result", "final_output")
"""Keys of an object whose text is the answer."""

_ACCEPTED = (
    "return text, a Message, a Trajectory, or messages of OpenAI, Anthropic, Gemini, LangChain, "
    "pydantic-ai or smolagents"
)
# Keys of messages and responses: an object that has one of them is not a plain answer.
_MESSAGE_KEYS = frozenset(
    {"role", "parts", "tool_calls", "message", "messages", "choices", "candidates", "contents"}
)
_CANDIDATE_KEYS = ("content", "index", "finish_reason", "finishReason")
_GEMINI_RESPONSE_KEYS = (
    *("candidates", "usageMetadata", "usage_metadata", "modelVersion", "model_version"),
    *("responseId", "response_id", "createTime", "create_time"),
    *("automaticFunctionCallingHistory", "automatic_function_calling_history"),
    *("sdkHttpResponse", "sdk_http_response"),
)


@dataclass(frozen=True)
class AgentOutput:
    """The return value of an agent as messages."""

    messages: list[Message]
    usage: Usage | None
    """The agent's own count of its tokens; None if it reports none."""

    dropped: tuple[Dropped, ...]
    """Every part and field that a message cannot represent."""

    format: str
    """The detected format, such as `openai_chat`."""


def convert_agent_output(value: Any) -> AgentOutput:
    """Convert text, messages, responses and results of agents to messages.

    Raises `WireError` if the value has no readable message.
    """
    # Of the class, since `isinstance` also asks a foreign object for its `__class__`.
    kind = type(value)
    if issubclass(kind, str):
        return AgentOutput([Message(role="assistant", content=value)], None, (), "text")
    if issubclass(kind, Trajectory):
        return AgentOutput(list(value.messages), None, (), "assay")
    if issubclass(kind, Sample):
        raise WireError("the agent returned a Sample", hint="return its trajectory or messages")
    if issubclass(kind, bytes | bytearray):
        # Only JSON, as pydantic-ai serializes its messages. Other bytes are not an answer.
        try:
            value = from_json(value)
        except ValueError:
            raise _build_kind_error(value) from None
    reader = _OutputReader()
    for method, read in (
        ("to_input_list", reader.read_openai_agents),
        ("all_messages", reader.read_pydantic_ai_run),
    ):
        if has_method(value, method):
            name, messages, usage = read(value)
            break
    else:
        plain = simplify(value, "output", reader.dropped)
        if plain is None or plain == []:
            raise _build_kind_error(value)
        name, messages, usage = reader.read(plain)
    if not messages:
        problems = "; ".join(f"{each.where}: {each.what}" for each in reader.dropped[:3])
        raise WireError(
            f"the agent returned {_describe_kind(value)} without a readable message"
            + (f" ({problems})" if problems else ""),
            hint=_ACCEPTED,
        )
    return AgentOutput(messages, usage, tuple(reader.dropped), name)


def _build_kind_error(value: object) -> WireError:
    is_stream = isinstance(value, Generator | AsyncGenerator)
    hint = "collect the parts and return the whole answer" if is_stream else _ACCEPTED
    return WireError(f"the agent returned {_describe_kind(value)}", hint=hint)


def _describe_kind(value: object) -> str:
    if value is None:
        return "None"
    if type(value) in (list, tuple) and not value:
        return "an empty list"
    return f"a value of type {type(value).__name__}"


_Read = tuple[str, list[Message], Usage | None]


class _OutputReader:
    """Reads one plain value, and collects the notes on dropped parts."""

    def __init__(self) -> None:
        self.dropped: list[Dropped] = []

    def read(self, value: Any) -> _Read:
        if isinstance(value, Message):
            return "assay", [value], None
        if isinstance(value, list) and any(map(classify_message, value)):
            return read_message_list(value, self.dropped)
        if isinstance(value, Mapping):
            return self._read_mapping(value)
        return self._read_json(value)

    def _read_mapping(self, value: Mapping[str, Any]) -> _Read:
        for key, read in (
            ("choices", self._read_chat_response),
            ("candidates", self._read_gemini_response),
            ("contents", self._read_gemini_contents),
        ):
            if isinstance(value.get(key), list):
                return read(value)
        items = value.get("output")
        if isinstance(items, list) and (
            value.get("object") == "response"
            or any(
                isinstance(item, Mapping) and isinstance(item.get("type"), str) for item in items
            )
        ):
            return self._read_responses_response(value)
        if is_smolagents_result(value):
            return self._read_smolagents_result(value)
        if isinstance(value.get("value"), Mapping) and "interrupts" in value:
            # The result of a LangGraph graph around its state.
            drop_fields(value, ("value",), "output", self.dropped)
            return self._read_mapping(value["value"])
        messages = value.get("messages")
        if isinstance(messages, list) and any(map(classify_message, messages)):
            return self._read_conversation(value)
        if isinstance(value.get("message"), Mapping) and "role" in value["message"]:
            drop_fields(value, ("message", "usage"), "output", self.dropped)
            return read_message_list([value["message"]], self.dropped)
        if classify_message(value) is not None:
            return self._read_message(value)
        for key in ANSWER_KEYS:
            if isinstance(value.get(key), str):
                drop_fields(value, (key, "usage"), "output", self.dropped)
                usage = read_token_usage(value.get("usage"))
                return "answer", [_build_answer(value[key])], usage
        if not _MESSAGE_KEYS.isdisjoint(value):
            return "unknown", [], None
        return self._read_json(value)

    def _read_json(self, value: Any) -> _Read:
        self.dropped.append(
            Dropped("output", f"a value of type {type(value).__name__}; written as JSON text")
        )
        return "json", [_build_answer(value)], None

    def _read_message(self, value: Mapping[str, Any]) -> _Read:
        # One message; that of Anthropic is a whole response, with usage.
        usage = read_token_usage(value.get("usage"))
        if classify_message(value) != "anthropic":
            name, messages, own = read_message_list([value], self.dropped)
            return name, messages, own or usage
        known = ("role", "content", "type", "id", "model", "stop_reason", "usage")
        drop_fields(value, known, "output", self.dropped)
        turn = {"role": value.get("role"), "content": value.get("content")}
        messages, _ = read_messages([turn], "anthropic", self.dropped)
        return "anthropic", _add_details(messages, value, value.get("stop_reason")), usage

    def _read_conversation(self, value: Mapping[str, Any]) -> _Read:
        name, messages, usage = read_message_list(value["messages"], self.dropped)
        if isinstance(value.get("system"), str):
            messages = [build_message("system", [build_text(value["system"])]), *messages]
        keys: tuple[str, ...] = ("messages", "system", "usage")
        own = read_token_usage(value.get("usage"))
        if name == "pydantic_ai" and "output" in value:
            # A serialized result of a run.
            keys = (*keys, "output", "new_message_index", "run_id", "conversation_id")
            messages = _append_answer(messages, value["output"])
        drop_fields(value, keys, "output", self.dropped)
        return name, messages, own or usage

    def _read_chat_response(self, value: Mapping[str, Any]) -> _Read:
        known = ("id", "object", "created", "model", "choices", "usage")
        drop_fields(value, known, "output", self.dropped)
        choices = value["choices"]
        if len(choices) > 1:
            note = f"{len(choices) - 1} other choices; left out"
            self.dropped.append(Dropped("output.choices", note))
        choice = choices[0] if choices and isinstance(choices[0], Mapping) else {}
        drop_fields(
            choice,
            ("index", "message", "finish_reason", "text"),
            "output.choices[0]",
            self.dropped,
        )
        message = choice.get("message")
        if not isinstance(message, Mapping):
            message = {"content": choice.get("text")} if choice.get("text") is not None else None
        messages: list[Message] = []
        if message is not None:
            wire = {"role": "assistant", **message}
            messages, _ = read_messages([wire], "openai_chat", self.dropped)
        messages = _add_details(messages, value, choice.get("finish_reason"))
        return "openai_chat", messages, read_token_usage(value.get("usage"))

    def _read_responses_response(self, value: Mapping[str, Any]) -> _Read:
        messages = read_responses_items(value["output"], self.dropped)
        error = value.get("error")
        if not messages and isinstance(error, Mapping):
            self.dropped.append(Dropped("output.error", str(error.get("message"))))
        known = ("id", "object", "created_at", "completed_at", "model", "output", "status", "usage")
        settings = [key for key, inner in value.items() if key not in known and inner]
        if settings:
            # One note for all: a response repeats every setting of its request.
            note = f"no place for {', '.join(f'`{key}`' for key in settings)}; left out"
            self.dropped.append(Dropped("output", note))
        incomplete = value.get("incomplete_details")
        reason = incomplete.get("reason") if isinstance(incomplete, Mapping) else None
        messages = _add_details(messages, {**value, "id": None}, reason)
        return "openai_responses", messages, read_token_usage(value.get("usage"))

    def _read_gemini_response(self, value: Mapping[str, Any]) -> _Read:
        get = _get_either_case
        candidates = value["candidates"]
        if len(candidates) > 1:
            note = f"{len(candidates) - 1} other candidates; left out"
            self.dropped.append(Dropped("output.candidates", note))
        first = candidates[0] if candidates and isinstance(candidates[0], Mapping) else {}
        drop_fields(first, _CANDIDATE_KEYS, "output.candidates[0]", self.dropped)
        history = get(value, "automaticFunctionCallingHistory")
        contents = [*history] if isinstance(history, list) else []
        if isinstance(first.get("content"), Mapping):
            contents.append({"role": "model", "parts": [], **first["content"]})
        drop_fields(value, _GEMINI_RESPONSE_KEYS, "output", self.dropped)
        messages, _ = read_messages(contents, "gemini", self.dropped)
        made = {"id": get(value, "responseId"), "model": get(value, "modelVersion")}
        messages = _add_details(messages, made, get(first, "finishReason"))
        return "gemini", messages, read_token_usage(get(value, "usageMetadata"))

    def _read_gemini_contents(self, value: Mapping[str, Any]) -> _Read:
        instruction = _get_either_case(value, "systemInstruction")
        known = ("contents", "systemInstruction", "system_instruction")
        drop_fields(value, known, "output", self.dropped)
        messages, _ = read_messages(value["contents"], "gemini", self.dropped)
        try:
            messages = [*from_gemini([], system_instruction=instruction), *messages]
        except WireError as error:
            drop_unreadable(error, "output.systemInstruction", self.dropped)
        return "gemini", messages, None

    def _read_smolagents_result(self, value: Mapping[str, Any]) -> _Read:
        known = ("output", "state", "steps", "token_usage", "timing", "messages")
        drop_fields(value, known, "output", self.dropped)
        messages = read_smolagents_steps(value["steps"], self.dropped)
        answer = value["output"]
        if not isinstance(answer, str) and answer is not None:
            self._read_json(answer)
        messages = _append_answer(messages, answer)
        return "smolagents", messages, read_token_usage(value.get("token_usage"))

    def read_openai_agents(self, value: object) -> _Read:
        """Read the result of a run of openai-agents."""
        items = simplify(read_attribute(value, "to_input_list"), "output", self.dropped)
        context = read_attribute(value, "context_wrapper")
        usage = simplify(read_attribute(context, "usage"), "output.usage", [])
        messages = read_responses_items(items if isinstance(items, list) else [], self.dropped)
        answer = simplify(read_attribute(value, "final_output"), "output", self.dropped)
        return "openai_agents", _append_answer(messages, answer), read_token_usage(usage)

    def read_pydantic_ai_run(self, value: object) -> _Read:
        """Read the result of a run of pydantic-ai."""
        given = simplify(read_attribute(value, "all_messages"), "output", self.dropped)
        values = given if isinstance(given, list) else []
        messages, summed = read_pydantic_ai_messages(values, self.dropped)
        usage = simplify(read_attribute(value, "usage"), "output.usage", [])
        answer = simplify(read_attribute(value, "output"), "output", self.dropped)
        return "pydantic_ai", _append_answer(messages, answer), read_token_usage(usage) or summed


def _get_either_case(value: Mapping[str, Any], name: str) -> Any:
    # The REST API uses camelCase, the Python SDK snake_case.
    snake = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
    return value.get(name, value.get(snake))


def _add_details(
    messages: list[Message], response: Mapping[str, Any], finish_reason: object
) -> list[Message]:
    """Return the messages with the model, time, id and ending of a response on the last answer."""
    place = next(
        (n for n in range(len(messages) - 1, -1, -1) if messages[n].role == "assistant"), None
    )
    if place is None:
        return messages
    last = messages[place]
    details = {**(last.details or {})}
    for key, value in (("id", response.get("id")), ("finish_reason", finish_reason)):
        if isinstance(value, str):
            details[key] = value
    update: dict[str, Any] = {"details": details} if details else {}
    if isinstance(response.get("model"), str):
        update["model"] = response["model"]
    created = response.get("created", response.get("created_at"))
    if type(created) in (int, float) and 0 < created < 2**33:
        update["timestamp"] = datetime.fromtimestamp(created, UTC).isoformat()
    return [*messages[:place], last.model_copy(update=update), *messages[place + 1 :]]


def _build_answer(value: object) -> Message:
    return build_message("assistant", [build_text(write_answer_text(value))])


def _append_answer(messages: list[Message], answer: object) -> list[Message]:
    """Return the messages, and the answer of a run unless the last message ends with it."""
    # The output of a tool that ends a run, or of a function of the agent, is in no message.
    if answer is None:
        return messages
    text = messages[-1].text.strip() if messages and messages[-1].role == "assistant" else ""
    if text and text.endswith(write_answer_text(answer).strip()):
        return messages
    if text and not isinstance(answer, str):
        try:
            if from_json(text) == answer:
                return messages
        except ValueError:
            pass
    return [*messages, _build_answer(answer)]
