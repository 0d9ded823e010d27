"""Answers calls with a model of another API, through assay's own messages."""

import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from assay.errors import AccessDenied, ConfigError, EndpointError, WireError
from assay.formats import (
    AnswerWriter,
    Converted,
    EventReader,
    ModelAnswer,
    ModelRequest,
    build_translation_error,
    normalize_finish_reason,
    to_anthropic,
    to_bedrock,
    to_gemini,
    to_openai_chat,
    to_openai_responses,
)
from assay.providers import Client, ModelClient, Reply, RequestTemplate
from assay.types import DataBlock, Message

from .http_answers import CallRefused, EventResponse, keep_alive, respond_json, stream_answer
from .recorded_call import RecordedCall
from .relay import (
    Relay,
    asks_for_usage,
    build_streamed_answer,
    check_answer_size,
    receive_answer,
    translate_stream_errors,
)
from .upstream import StreamSource, Upstream

# A gateway that runs for weeks must not keep every answer. Each has two keys.
_MAX_ANSWERS = 10_000
# Errors inside streams have names, not a status.
_STREAM_ERRORS = {
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "RESOURCE_EXHAUSTED": 429,
    "429": 429,
    "503": 503,
    "UNAVAILABLE": 503,
    "overloaded_error": 529,
}
_WRITERS: dict[str, Callable[[Sequence[Message]], Converted[Any]]] = {
    "openai": to_openai_chat,
    "openai-responses": to_openai_responses,
    "anthropic": to_anthropic,
    "bedrock": to_bedrock,
    "gemini": to_gemini,
}


@dataclass(frozen=True)
class _Question:
    """A request as the model is asked."""

    wanted: ModelRequest
    client: ModelClient
    messages: list[Message]
    seed: int | None
    head: ModelAnswer
    """The answer without its content."""


class Translator:
    """Calls of agents to a model with another API, or in this process."""

    def __init__(self, upstream: Upstream, relay: Relay) -> None:
        self._upstream = upstream
        self._relay = relay

    async def answer(
        self,
        request: web.Request,
        call: RecordedCall,
        body: Mapping[str, Any],
        answers: "AnswerMemory",
    ) -> web.StreamResponse:
        """Ask the model and respond to the agent. Raises `CallRefused`."""
        asked = self._prepare(call, body, answers)
        async with self._upstream.keep_open(asked.client):
            return await self._respond(request, call, body, asked, answers)

    async def _respond(
        self,
        request: web.Request,
        call: RecordedCall,
        body: Mapping[str, Any],
        asked: _Question,
        answers: "AnswerMemory",
    ) -> web.StreamResponse:
        if not call.streamed:
            return respond_json(await self._fetch(call, asked, answers))
        source = self._upstream.find_stream()
        if source is None or not isinstance(asked.client, Client):
            return await stream_answer(request, call, body, self._fetch(call, asked, answers))
        writer = call.dialect.make_writer(asked.head, include_usage=asks_for_usage(body))
        response = EventResponse(request)
        try:
            async with keep_alive(response):
                reply = await self._stream(call, asked, source, writer, response)
        except CallRefused as refused:
            if response.is_started:
                call.fail(refused.message, status=200)
            raise
        answers.add(asked.wanted.messages, reply.message)
        return await response.end()

    def _prepare(
        self, call: RecordedCall, body: Mapping[str, Any], answers: "AnswerMemory"
    ) -> _Question:
        try:
            wanted = call.dialect.read_request(body)
            check_representable(wanted.messages, self._upstream.protocol)
            client, settings = self._upstream.choose_client(wanted)
        except WireError as error:
            raise _build_wire_refusal(error) from None
        except (TypeError, ValueError) as error:
            raise CallRefused(400, f"the request is invalid: {error}") from None
        call.sampling = {name: value for name, value in settings.items() if value is not None}
        # Overridden by the endpoint, or a wish that the model's API has no place for.
        seed = self._upstream.choose_seed(wanted, call.seed)
        unused = wanted.settings.keys() - settings.keys()
        if seed == wanted.settings.get("seed"):
            unused -= {"seed"}
        notes = [f"`{name}` of the agent; not used" for name in sorted(unused)]
        call.dropped |= Counter([*(each.what for each in wanted.dropped), *notes])
        head = ModelAnswer(
            message=Message(role="assistant", content=""),
            finish_reason="stop",
            usage=None,
            model=self._upstream.endpoint.model,
            id=secrets.token_hex(12),
            created=int(time.time()),
            free_text_tools=wanted.free_text_tools,
            namespaces=wanted.namespaces,
        )
        return _Question(wanted, client, answers.restore(wanted.messages), seed, head)

    async def _fetch(
        self, call: RecordedCall, asked: _Question, answers: "AnswerMemory"
    ) -> dict[str, Any]:
        """Ask for the whole answer."""
        with _refuse_faults():
            reply = await asked.client.complete(
                asked.messages, tools=asked.wanted.tools, seed=asked.seed
            )
        reply = _name_calls(reply)
        answers.add(asked.wanted.messages, reply.message)
        answer = call.dialect.write_answer(_complete_answer(asked.head, reply))
        call.finish(answer, reply)
        return answer

    async def _stream(
        self,
        call: RecordedCall,
        asked: _Question,
        source: StreamSource,
        writer: AnswerWriter,
        response: EventResponse,
    ) -> Reply:
        """Pass the answer on while it arrives."""
        client, copy = asked.client, call.dialect.make_stream()
        assert isinstance(client, Client)
        with _refuse_faults():
            data, lost = client.write_request(
                asked.messages, tools=asked.wanted.tools, seed=asked.seed
            )
        template = self._relay.find_template(source.path)
        reader, stream = EventReader(), source.make_stream()
        # The members go where the object ends: a parsed copy of a long conversation costs more.
        sent = data[:-1] + source.more
        async with self._relay.request(template, sent, query=source.query) as upstream:
            if "json" in upstream.content_type:
                # Some servers ignore `stream`.
                whole = await receive_answer(upstream)
            else:
                with translate_stream_errors():
                    async for chunk in upstream.content.iter_any():
                        check_answer_size(upstream)
                        call.note_first_byte()
                        for event in reader.feed(chunk):
                            stream.add(event)
                            if stream.error is not None:
                                raise _build_stream_refusal(stream.error, template)
                            for part in source.read_parts(event):
                                writer.add(part)
                        if written := writer.take():
                            await response.write(written)
                    whole = build_streamed_answer(stream)
        call.note_first_byte()
        with _refuse_faults():
            reply = client.read_answer(
                whole,
                latency_s=call.elapsed_s,
                message_index=len(asked.messages),
                seed=asked.seed,
                lost=lost,
            )
        # By the ids that the agent has read already.
        reply = _name_calls(reply, [each.call_id for each in writer.sections if each.name])
        answer = _complete_answer(asked.head, reply)
        writer.finish(answer)
        await response.write(writer.take(), is_last=True)
        # As the agent has read it: the order of parts may be another than in a whole answer.
        for event in EventReader().feed(writer.written):
            copy.add(event)
        call.finish({**call.dialect.write_answer(answer), **copy.build_answer()}, reply)
        return reply


@contextmanager
def _refuse_faults() -> Iterator[None]:
    """Raise `CallRefused` for errors of the model and of its client."""
    try:
        yield
    except EndpointError as error:
        status = error.status
        if status is None:
            status = 401 if isinstance(error, AccessDenied) else 502 if error.retryable else 400
        elif not 400 <= status < 600:
            status = 502  # such as a redirect, which is not the agent's fault
        refused = CallRefused(
            status, error.message, code="upstream_error", retry_after_s=error.retry_after_s
        )
        # Without a status, it may have come too late, or been lost on its way.
        refused.is_free = error.status != 200 and not (error.status is None and error.retryable)
        raise refused from None
    except ConfigError as error:
        raise CallRefused(400, error.message) from None
    except WireError as error:
        raise _build_wire_refusal(error) from None


def _build_wire_refusal(error: WireError) -> CallRefused:
    hint = f" ({error.hint})" if error.hint else ""
    named = not error.where or error.where in error.message
    message = error.message if named else f"{error.where}: {error.message}"
    return CallRefused(400, f"{message}{hint}", code="untranslatable")


def _complete_answer(head: ModelAnswer, reply: Reply) -> ModelAnswer:
    return replace(
        head,
        message=reply.message,
        finish_reason=normalize_finish_reason(reply.call.finish_reason, reply.message),
        usage=reply.call.usage,
        model=reply.call.model or head.model,
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
        while len(self._answers) > _MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]

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
            what = loss.what.removesuffix("; left out")
            error = build_translation_error(loss.where)
            raise WireError(f"{error.message}: {what}", where=loss.where, hint=error.hint)


def _identify_answer(message: Message) -> object:
    calls = tuple((call.id, call.name, repr(call.arguments)) for call in message.tool_calls)
    return message.text, calls


def _name_calls(reply: Reply, ids: Sequence[str] = ()) -> Reply:
    """Give calls without an id one, the given ids first: agents refer to calls by it."""
    calls = reply.message.tool_calls
    if all(call.id is not None for call in calls):
        return reply
    known = [*ids, *(f"call_{secrets.token_hex(8)}" for _ in calls)]
    named = tuple(
        call if call.id is not None else call.model_copy(update={"id": known[place]})
        for place, call in enumerate(calls)
    )
    return reply._replace(message=reply.message.model_copy(update={"tool_calls": named}))


def _build_stream_refusal(error: object, template: RequestTemplate) -> CallRefused:
    """Return the refusal for an error in the stream of the model, with its usual status."""
    given = error if isinstance(error, Mapping) else {}
    message = given.get("message")
    kinds = [str(given.get(name)) for name in ("type", "code", "status")]
    status = next((_STREAM_ERRORS[kind] for kind in kinds if kind in _STREAM_ERRORS), 502)
    # Cleaned: servers quote the key that they refuse.
    text = template.redactor.clean(message if isinstance(message, str) else str(error), cut=True)
    return CallRefused(status, text[:2000], code="upstream_error")
