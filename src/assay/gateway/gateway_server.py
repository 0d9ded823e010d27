"""The server of the gateway: one address for each sample, in front of one model."""

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from aiohttp import web
from pydantic_core import from_json

from assay.errors import ConfigError
from assay.providers import ModelClient
from assay.types import describe_error

from .dialects import DIALECTS, OPENAI_CHAT, Dialect
from .gateway_session import RETRY_HEADER, GatewaySession, compute_body_digest
from .http_answers import NO_RETRY, CallRefused, respond_error, respond_json, stream_answer
from .recorded_call import RecordedCall
from .relay import Relay
from .spending import GatewayLimits
from .translation import AnswerMemory, Translator
from .upstream import Upstream

_BACKLOG = 1024
_ACCESS_MESSAGE = "the address or the key is not one of this gateway"

CallObserver = Callable[[GatewaySession, RecordedCall], None]


@dataclass(frozen=True)
class GatewaySettings:
    """Address and limits of a gateway."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 selects any free port."""

    max_body_bytes: int = 64 * 1024 * 1024
    """Larger requests are refused."""


class Gateway:
    """A proxy that records the calls of agents; an async context manager that serves them.

    Each sample has a session of its own, with an address and a key.
    """

    def __init__(
        self,
        upstream: ModelClient,
        settings: GatewaySettings | None = None,
        *,
        limits: GatewayLimits | None = None,
        observe: CallObserver | None = None,
    ) -> None:
        self._upstream = Upstream(upstream)
        self._settings = settings or GatewaySettings()
        self._limits = limits or GatewayLimits()
        self._observe = observe
        self._relay = Relay(self._upstream)
        self._translator = Translator(self._upstream)
        self._sessions: dict[str, GatewaySession] = {}
        self._memories: dict[str, AnswerMemory] = {}
        self._secrets: list[str] = []
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        self._secrets = self._upstream.secrets
        app = web.Application(client_max_size=self._settings.max_body_bytes)
        for dialect in DIALECTS:
            app.router.add_post(f"/s/{{session}}/v1{dialect.path}", partial(self._serve, dialect))
        app.router.add_get("/s/{session}/v1/models", self._list_models)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._settings.host, self._settings.port, backlog=_BACKLOG)
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError(
                f"the gateway cannot listen on {self._settings.host}:{self._settings.port}: "
                f"{error.strerror}",
                hint="choose another port, or 0 for any free one",
            ) from None
        port = self._runner.addresses[0][1]
        host = self._settings.host
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for session in list(self._sessions.values()):
            await session.seal()
        if self._runner is not None:
            await self._runner.cleanup()
        await self._relay.close()
        await self._upstream.close()

    def open_session(
        self, name: str | None = None, *, limits: GatewayLimits | None = None
    ) -> GatewaySession:
        """Return a new session, whose address and key an agent is given."""
        session_id = name or secrets.token_urlsafe(9)
        if session_id in self._sessions or "/" in session_id:
            raise ConfigError(f"{session_id!r} cannot be the name of another session")
        session = GatewaySession(
            session_id, self.url, limits=limits or self._limits, hidden=self._secrets
        )
        self._sessions[session_id] = session
        self._memories[session_id] = AnswerMemory()
        return session

    def forget(self, session: GatewaySession) -> None:
        """Remove a sealed session: its address is then unknown."""
        self._sessions.pop(session.id, None)
        self._memories.pop(session.id, None)

    def _authenticate(self, request: web.Request) -> GatewaySession:
        session = self._sessions.get(request.match_info["session"])
        key = _read_key(request.headers)
        # Compared also without a session: both refusals look alike and take as long.
        if session is None or key is None or not session.accepts(key):
            raise CallRefused(401, _ACCESS_MESSAGE, code="invalid_api_key")
        if session.is_sealed:
            raise CallRefused(
                409, "the sample of this session has ended", code="session_sealed", headers=NO_RETRY
            )
        return session

    async def _serve(self, dialect: Dialect, request: web.Request) -> web.StreamResponse:
        call: RecordedCall | None = None
        session: GatewaySession | None = None
        try:
            session = self._authenticate(request)
            raw = await request.read()
            body = _parse_body(raw)
            if session.is_sealed:
                raise CallRefused(409, "the sample of this session has ended", headers=NO_RETRY)
            retried = await self._repeat(session, dialect, request, body, raw)
            if retried is not None:
                return retried
            if (limit := session.spending.find_limit()) is not None:
                session.limit_reached = session.limit_reached or limit
                raise CallRefused(
                    400,
                    f"the limit {limit} of this sample is reached",
                    code="limit_reached",
                    headers=NO_RETRY,
                )
            call = session.start_call(dialect, body, raw, request.headers)
            return await self._answer(session, call, request, body, raw)
        except CallRefused as refused:
            if call is not None:
                call.fail(refused.message, status=refused.status)
            return respond_error(refused, dialect)
        except web.HTTPRequestEntityTooLarge:
            most = self._settings.max_body_bytes
            too_large = CallRefused(413, f"the request has more than {most:,} bytes")
            return respond_error(too_large, dialect)
        except Exception as error:
            problem = f"the gateway failed: {describe_error(error)}"
            if session is not None:
                session.fault = session.fault or problem
            if call is not None:
                call.fail(problem, status=500)
            return respond_error(CallRefused(500, problem, code="gateway_error"), dialect)
        finally:
            if call is not None and session is not None:
                call.fail("the call was aborted")
                if self._observe is not None:
                    self._observe(session, call)

    async def _answer(
        self,
        session: GatewaySession,
        call: RecordedCall,
        request: web.Request,
        body: dict[str, Any],
        raw: bytes,
    ) -> web.StreamResponse:
        task = asyncio.current_task()
        assert task is not None
        session.track(task)
        try:
            async with asyncio.timeout(session.spending.left_s):
                if self._upstream.speaks(call.dialect):
                    response = await self._relay.answer(request, call, body, raw)
                else:
                    memory = self._memories[session.id]
                    response = await self._translator.answer(request, call, body, memory)
        except TimeoutError:
            session.limit_reached = session.limit_reached or "max_seconds"
            raise CallRefused(
                400, "the limit max_seconds of this sample is reached", headers=NO_RETRY
            ) from None
        finally:
            if call.status is not None and call.reply is not None:
                session.spending.add(call.reply.call.usage)
        return response

    async def _repeat(
        self,
        session: GatewaySession,
        dialect: Dialect,
        request: web.Request,
        body: dict[str, Any],
        raw: bytes,
    ) -> web.StreamResponse | None:
        """Answer a marked retry with the recorded answer; None if it is a new call."""
        if request.headers.get(RETRY_HEADER, "0") in ("", "0"):
            return None
        original = session.find_original(compute_body_digest(raw))
        if original is None:
            return None
        # The first attempt may still be running: its client gave up, not the model.
        await original.done.wait()
        if original.answer is None:
            return None
        call = session.start_call(dialect, body, raw, request.headers)
        call.purpose, call.repeats = "retry", original
        call.finish(original.answer, original.reply)
        if call.streamed:
            return await stream_answer(request, call, body, _return(original.answer))
        return respond_json(original.answer)

    async def _list_models(self, request: web.Request) -> web.Response:
        try:
            self._authenticate(request)
        except CallRefused as refused:
            return respond_error(refused, OPENAI_CHAT)
        model = self._upstream.endpoint.model
        entry = {"id": model, "object": "model", "created": 0, "owned_by": "assay"}
        return respond_json({"object": "list", "data": [entry]})


async def _return(answer: dict[str, Any]) -> dict[str, Any]:
    return answer


def _read_key(headers: Mapping[str, str]) -> str | None:
    for name in ("x-api-key", "api-key"):
        if name in headers:
            return headers[name]
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None


def _parse_body(raw: bytes) -> dict[str, Any]:
    try:
        body = from_json(raw)
    except ValueError as error:
        raise CallRefused(400, f"the request is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise CallRefused(400, "the request is not a JSON object")
    return body
