"""Answers the calls of one gateway: retries, limits, then the model."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web
from pydantic_core import from_json, to_json

from assay.errors import ReplayDifference
from assay.providers import Reply
from assay.types import describe_error

from .dialects import ANTHROPIC, OPENAI_RESPONSES, Dialect, read_answer_message
from .gateway_session import RETRY_HEADER, GatewaySession
from .http_answers import NO_RETRY, CallRefused, respond_json, stream_answer
from .recorded_call import NO_TURNS, RecordedCall
from .recorded_exchange import RecordedExchange
from .relay import Relay, parse_surrogates
from .replay import name_kind
from .response_state import resolve_response_state
from .spending import RUN_LIMIT
from .translation import Translator
from .upstream import Upstream

COUNT_TOKENS_PATH = f"{ANTHROPIC.path}/count_tokens"
# For a first guess, before the model has reported how it counts.
_BYTES_PER_TOKEN = 4.0
_NOT_RECORDED = "replay_difference"
_SURROGATES = "half characters (lone surrogates) of the request; replaced"

CallObserver = Callable[[GatewaySession, RecordedCall], None]


class CallHandler:
    """Serves calls of sessions. Raises `CallRefused` for those without an answer."""

    def __init__(self, upstream: Upstream, observe: CallObserver | None) -> None:
        self._upstream = upstream
        self._observe = observe
        self._relay = Relay(upstream)
        self._translator = Translator(upstream, self._relay)

    async def close(self) -> None:
        """Close the connections to the model."""
        await self._relay.close()
        await self._upstream.close()

    async def serve(
        self, request: web.Request, session: GatewaySession, dialect: Dialect
    ) -> web.StreamResponse:
        """Answer one call."""
        raw = await request.read()
        body, lost = _parse_body(raw)
        if lost:
            raw = to_json(body)
        if session.is_sealed:
            raise build_sealed_refusal()
        if dialect is OPENAI_RESPONSES:
            resolved = resolve_response_state(body, session.calls)
            if resolved is not body:
                body, raw = resolved, to_json(resolved)
        if (retried := await self._repeat(request, session, dialect, body, raw)) is not None:
            return retried
        _check_limits(session, body, request.headers)
        call = session.start_call(dialect, body, raw, request.headers)
        call.dropped = lost
        try:
            with session.track_task(), session.spending.reserve_turn(int(call.is_turn)):
                return await self._answer(request, session, call, body, raw)
        except CallRefused as refused:
            call.fail(refused.message, status=refused.status, is_free=refused.is_free)
            if refused.code == _NOT_RECORDED:
                call.latency_s = None  # no model was asked
            raise
        except Exception as error:
            problem = f"the gateway failed: {describe_error(error)}"
            session.fault = session.fault or problem
            call.fail(problem, status=500)
            raise CallRefused(500, problem, code="gateway_error") from error
        finally:
            call.fail("the call was aborted")
            if call.reply is not None:
                session.spending.add(call.reply.call.usage, is_turn=call.is_turn)
            if self._observe is not None:
                self._observe(session, call)

    async def _answer(
        self,
        request: web.Request,
        session: GatewaySession,
        call: RecordedCall,
        body: dict[str, Any],
        raw: bytes,
    ) -> web.StreamResponse:
        if (found := _find_recorded(session, call)) is not None:
            return await _replay(request, call, body, found)
        try:
            async with asyncio.timeout(session.spending.left_s):
                if self._upstream.speaks(call.dialect):
                    return await self._relay.answer(request, call, body, raw)
                return await self._translator.answer(request, call, body, session.answers)
        except TimeoutError:
            session.limit_reached = session.limit_reached or "max_seconds"
            refused = _build_limit_refusal("max_seconds")
            refused.is_free = False
            raise refused from None

    async def _repeat(
        self,
        request: web.Request,
        session: GatewaySession,
        dialect: Dialect,
        body: dict[str, Any],
        raw: bytes,
    ) -> web.StreamResponse | None:
        """Answer a marked retry with the recorded answer; None if it is a new call."""
        if request.headers.get(RETRY_HEADER, "0") in ("", "0"):
            return None
        original = session.find_original(dialect, body)
        if original is None:
            return None
        # The first attempt may still be running: its client gave up, not the model.
        await original.done.wait()
        answer = original.answer
        if answer is None or session.is_sealed:
            return None
        call = session.start_call(dialect, body, raw, request.headers)
        call.purpose, call.repeats = "retry", original
        call.finish(answer, original.reply)
        if call.streamed:
            return await stream_answer(request, call, body, answer)
        return respond_json(answer)

    async def count_tokens(self, request: web.Request, session: GatewaySession) -> web.Response:
        """Count the tokens of a request in Anthropic's API; estimated for other models."""
        raw = await request.read()
        body, lost = _parse_body(raw)
        if session.is_sealed:
            raise build_sealed_refusal()
        call = session.start_call(ANTHROPIC, body, raw, request.headers)
        call.purpose, call.dropped = "count_tokens", lost
        try:
            if (found := _find_recorded(session, call)) is not None:
                answer = _take_answer(found)
            elif self._upstream.speaks(ANTHROPIC):
                answer = await self._relay.count_tokens(request, COUNT_TOKENS_PATH, body)
            else:
                answer = {"input_tokens": _estimate_tokens(session, raw)}
        except CallRefused as refused:
            call.fail(refused.message, status=refused.status)
            raise
        call.finish(answer, None)
        if found is not None:
            call.latency_s = found.build_call().latency_s
        return respond_json(answer)

    def list_models(self, headers: Mapping[str, str]) -> dict[str, Any]:
        """Return the list of models in the API that the headers are of."""
        model = self._upstream.endpoint.model
        if "anthropic-version" in headers:
            created = "1970-01-01T00:00:00Z"
            entry = {"type": "model", "id": model, "display_name": model, "created_at": created}
            return {"data": [entry], "has_more": False, "first_id": model, "last_id": model}
        named = {"id": model, "object": "model", "created": 0, "owned_by": "assay"}
        return {"object": "list", "data": [named]}


def _find_recorded(session: GatewaySession, call: RecordedCall) -> RecordedExchange | None:
    """Return the recorded call that answers; None if the model does. Raises `CallRefused`."""
    if session.replay is None:
        return None
    kind = name_kind(call.dialect.name, counts=call.purpose == "count_tokens")
    try:
        return session.replay.find_request(kind, call.request)
    except ReplayDifference as difference:
        # Not an error that agents try again after: every attempt would differ.
        raise CallRefused(400, difference.message, code=_NOT_RECORDED, headers=NO_RETRY) from None


async def _replay(
    request: web.Request, call: RecordedCall, body: dict[str, Any], found: RecordedExchange
) -> web.StreamResponse:
    answer = _take_answer(found)
    record = found.build_call()
    message = read_answer_message(call.dialect, answer)
    call.finish(answer, Reply(message, record), status=found.status or 200)
    # The latency is that of the recorded call. One that is unknown stays so.
    call.latency_s = record.latency_s
    try:
        if call.streamed:
            return await stream_answer(request, call, body, answer)
        return respond_json(answer)
    finally:
        call.first_byte_s = found.first_byte_s


def _take_answer(found: RecordedExchange) -> dict[str, Any]:
    if found.answer is None:
        # A stream that broke has the status of its start.
        status = found.status if found.status is not None and found.status >= 400 else 502
        raise CallRefused(status, found.error or "the recorded call has no answer")
    return found.answer


def build_sealed_refusal() -> CallRefused:
    """Return the refusal of a call after the end of its sample."""
    return CallRefused(
        409, "the sample of this session has ended", code="session_sealed", headers=NO_RETRY
    )


def _check_limits(
    session: GatewaySession, body: Mapping[str, Any], headers: Mapping[str, str]
) -> None:
    limit = session.spending.find_limit()
    if limit is not None and session.classify(body, headers) in NO_TURNS:
        limit = session.spending.find_limit(is_turn=False)
    if limit is not None:
        session.limit_reached = session.limit_reached or limit
        raise _build_limit_refusal(limit)


def _build_limit_refusal(limit: str) -> CallRefused:
    # Not 429: agents wait and try again after it.
    scope = "run" if limit.startswith(RUN_LIMIT) else "sample"
    message = f"the limit {limit} of this {scope} is reached"
    return CallRefused(400, message, code="limit_reached", headers=NO_RETRY)


def _parse_body(raw: bytes) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the body of a request, and the counts of what JSON could not represent."""
    lost: dict[str, int] = {}
    try:
        body = from_json(raw)
    except ValueError as error:
        body = parse_surrogates(raw)
        if body is None:
            raise CallRefused(400, f"the request is not JSON: {error}") from None
        lost[_SURROGATES] = 1
    if not isinstance(body, dict):
        raise CallRefused(400, "the request is not a JSON object")
    return body, lost


def _estimate_tokens(session: GatewaySession, raw: bytes) -> int:
    """Estimate by the size of the last request whose tokens the model has counted."""
    for call in reversed(session.calls):
        usage = None if call.reply is None else call.reply.call.usage
        if usage is not None and usage.input_tokens and call.size_bytes:
            return max(round(len(raw) * usage.input_tokens / call.size_bytes), 1)
    return max(round(len(raw) / _BYTES_PER_TOKEN), 1)
