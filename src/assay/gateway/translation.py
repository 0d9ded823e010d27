"""Answers calls with a model of another API, through assay's own messages."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from assay.errors import AccessDenied, ConfigError, EndpointError, WireError
from assay.formats import (
    Converted,
    ModelAnswer,
    ModelRequest,
    normalize_finish_reason,
    to_anthropic,
    to_openai_chat,
    to_openai_responses,
)
from assay.providers import Reply
from assay.types import DataBlock, Message

from .http_answers import CallRefused, respond_json, stream_answer
from .recorded_call import RecordedCall
from .upstream import Upstream

_WRITERS: dict[str, Callable[[Sequence[Message]], Converted[Any]]] = {
    "openai": to_openai_chat,
    "openai-responses": to_openai_responses,
    "anthropic": to_anthropic,
}


class Translator:
    """Calls of agents to a model with another API, or in this process."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def answer(
        self,
        request: web.Request,
        call: RecordedCall,
        body: Mapping[str, Any],
        answers: "AnswerMemory",
    ) -> web.StreamResponse:
        """Ask the model and respond to the agent. Raises `CallRefused`."""
        work = self._ask(call, body, answers)
        if call.streamed:
            return await stream_answer(request, call, body, work)
        return respond_json(await work)

    async def _ask(
        self, call: RecordedCall, body: Mapping[str, Any], answers: "AnswerMemory"
    ) -> dict[str, Any]:
        try:
            wanted = call.dialect.read_request(body)
            check_representable(wanted.messages, self._upstream.protocol)
            client, settings = self._upstream.choose_client(wanted)
        except WireError as error:
            hint = f" ({error.hint})" if error.hint else ""
            raise CallRefused(400, f"{error.message}{hint}", code="untranslatable") from None
        except (TypeError, ValueError) as error:
            raise CallRefused(400, f"the request is invalid: {error}") from None
        call.sampling = {name: value for name, value in settings.items() if value is not None}
        # Overridden by the endpoint, or a wish that the model's API has no place for.
        seed = self._upstream.choose_seed(wanted, call.seed)
        unused = wanted.settings.keys() - settings.keys()
        if seed == wanted.settings.get("seed"):
            unused -= {"seed"}
        notes = [f"`{name}` of the agent; not used" for name in sorted(unused)]
        call.dropped = dict(Counter([*(each.what for each in wanted.dropped), *notes]))
        messages = answers.restore(wanted.messages)
        try:
            reply = await client.complete(messages, tools=wanted.tools, seed=seed)
        except EndpointError as error:
            raise _build_endpoint_refusal(error) from None
        except ConfigError as error:
            raise CallRefused(400, error.message) from None
        except WireError as error:
            raise CallRefused(
                400, f"{error.where}: {error.message}", code="untranslatable"
            ) from None
        answers.add(wanted.messages, reply.message)
        answer = call.dialect.write_answer(self._build_answer(reply, wanted))
        call.finish(answer, reply)
        return answer

    def _build_answer(self, reply: Reply, wanted: ModelRequest) -> ModelAnswer:
        return ModelAnswer(
            message=_name_calls(reply.message),
            finish_reason=normalize_finish_reason(reply.call.finish_reason, reply.message),
            usage=reply.call.usage,
            model=reply.call.model or self._upstream.endpoint.model,
            id=secrets.token_hex(12),
            created=int(time.time()),
            free_text_tools=wanted.free_text_tools,
            namespaces=wanted.namespaces,
        )


class AnswerMemory:
    """The answers of one session as the model wrote them.

    The agent sends them back in its own API, which has no place for the encrypted reasoning, the
    signatures and the spelling of arguments of another one. An answer that comes back unchanged is
    replaced by the original, so that the model sees its own words, and its own tokens.
    """

    def __init__(self) -> None:
        self._answers: dict[object, Message] = {}

    def add(self, messages: Sequence[Message], answer: Message) -> None:
        """Remember the answer to a conversation."""
        key = _identify_answer(answer)
        self._answers[key] = answer
        # Short answers are equal in several conversations, where each has its own tokens.
        self._answers[_hash_conversation(messages), key] = answer

    def restore(self, messages: list[Message]) -> list[Message]:
        """Replace the answers that came back unchanged."""
        if not self._answers:
            return messages
        restored, before = [], _EMPTY
        for message in messages:
            original = message
            if message.role == "assistant":
                key = _identify_answer(message)
                anywhere = self._answers.get(key, message)
                original = self._answers.get((before, key), anywhere)
            restored.append(original)
            before = _hash_conversation((message,), before)
        return restored


# The hash of a conversation without messages.
_EMPTY = 0


def _hash_conversation(messages: Sequence[Message], before: int = _EMPTY) -> int:
    for message in messages:
        before = hash((before, message.role, _identify_answer(message), message.tool_call_id))
    return before


def check_representable(messages: Sequence[Message], protocol: str) -> None:
    """Raise `WireError` for images and other blocks that the model's API has no place for."""
    blocks = (each.content for each in messages if isinstance(each.content, tuple))
    write = _WRITERS.get(protocol)
    if write is None or not any(isinstance(block, DataBlock) for each in blocks for block in each):
        return
    for loss in write(messages).dropped:
        if loss.where.endswith("]") and ".content[" in loss.where:
            raise WireError(f"{loss.where}: {loss.what}", where=loss.where)


def _identify_answer(message: Message) -> object:
    calls = tuple((call.id, call.name, repr(call.arguments)) for call in message.tool_calls)
    return message.text, calls


def _name_calls(message: Message) -> Message:
    """Give calls without an id one: agents refer to calls by it."""
    if all(call.id is not None for call in message.tool_calls):
        return message
    calls = tuple(
        call
        if call.id is not None
        else call.model_copy(update={"id": f"call_{secrets.token_hex(8)}"})
        for call in message.tool_calls
    )
    return message.model_copy(update={"tool_calls": calls})


def _build_endpoint_refusal(error: EndpointError) -> CallRefused:
    status = error.status if error.status is not None and 400 <= error.status < 600 else None
    if status is None:
        status = 401 if isinstance(error, AccessDenied) else 502 if error.retryable else 400
    return CallRefused(
        status, error.message, code="upstream_error", retry_after_s=error.retry_after_s
    )
