"""Recorded calls of a gateway, without a server: a request, and the answer to it."""

from typing import Any

from assay.gateway.dialects import ANTHROPIC, OPENAI_CHAT, OPENAI_RESPONSES, Dialect
from assay.gateway.gateway_session import GatewaySession
from assay.gateway.recorded_call import RecordedCall
from assay.gateway.spending import GatewayLimits
from assay.providers import Reply
from assay.types import Message, ModelCall, ToolCall, Usage

DIALECTS: dict[str, Dialect] = {
    "chat": OPENAI_CHAT,
    "responses": OPENAI_RESPONSES,
    "messages": ANTHROPIC,
}
USAGE = Usage(input_tokens=10, output_tokens=1)


class Recording:
    """A session to which calls are added by hand."""

    def __init__(self) -> None:
        self.session = GatewaySession("s", "http://127.0.0.1:1", limits=GatewayLimits())

    def ask(
        self,
        messages: list[dict[str, Any]],
        answer: str | Message | None,
        *,
        headers: dict[str, str] | None = None,
        ids: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
        **body: Any,
    ) -> RecordedCall:
        """Record a chat completion; an answer of None is a failed call."""
        call = self.start(messages, headers=headers, **body)
        if answer is None:
            call.fail("broken", status=503)
        else:
            self.answer(call, answer, ids=ids)
        return call

    def start(
        self, messages: list[dict[str, Any]], *, headers: dict[str, str] | None = None, **body: Any
    ) -> RecordedCall:
        """Record the request of a call that is in flight."""
        request = {"model": "m", "messages": messages, **body}
        return self.session.start_call(OPENAI_CHAT, request, repr(request).encode(), headers or {})

    def answer(
        self,
        call: RecordedCall,
        answer: str | Message,
        *,
        ids: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
    ) -> None:
        """Record the answer of a call."""
        message = Message(role="assistant", content=answer) if isinstance(answer, str) else answer
        fields: dict[str, Any] = {"usage": USAGE, "finish_reason": "stop"}
        if ids is not None:
            fields |= {"prompt_ids": ids[0], "completion_ids": ids[1]}
        call.finish(
            {"choices": [{"message": write_message(message), "finish_reason": "stop"}]},
            Reply(message, ModelCall(**fields)),
        )


def write_message(message: Message) -> dict[str, Any]:
    """Write an answer as a chat completion, and as the agent sends it back."""
    written: dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.tool_calls:
        written["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments_text},
            }
            for call in message.tool_calls
        ]
    return written


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def agent(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call_tool(call_id: str, name: str, **arguments: Any) -> Message:
    return Message(
        role="assistant", tool_calls=(ToolCall(id=call_id, name=name, arguments=arguments),)
    )
