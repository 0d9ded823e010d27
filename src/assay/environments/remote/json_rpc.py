"""JSON-RPC over HTTP as MCP speaks it: a POST for each request, answered as JSON or as events."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from pydantic_core import from_json, to_json

from assay.errors import EnvironmentFault
from assay.providers import Redactor

from .http_client import (
    MAX_SERVER_RESPONSE_BYTES,
    STEP_TIMEOUT_HINT,
    TOKEN_HINT,
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    ServerResponse,
    TimedOut,
)
from .retry_when_busy import ServerBusy

if TYPE_CHECKING:
    from aiohttp import ClientResponse

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

_DRAIN_S = 0.1
_ACCEPT = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}


class RpcError(Exception):
    """The server refuses a request. `code` is None when it is HTTP that says so."""

    def __init__(self, message: str, *, code: int | None, status: int, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.data = data


class TokenRejected(EnvironmentFault):
    """The server wants a token, or another one."""


@dataclass(frozen=True, slots=True)
class RpcResult:
    """What a request came to, and the headers that came with it."""

    value: Mapping[str, Any]
    headers: Mapping[str, str]


class JsonRpc:
    """Requests to one address. Makes one attempt for each: it cannot know what was done."""

    def __init__(self, link: EnvironmentClient, url: str) -> None:
        self.link = link
        self.url = url
        self._numbers = itertools.count(1)

    async def call(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> RpcResult:
        """The result of a request.

        Raises `RpcError` if the server refuses it, `ServerBusy` if it has no place, and
        `EnvironmentFault` if no answer comes or none that can be understood.
        """
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = await self._post(request, headers)
        return self._parse_result(answer, number)

    async def notify(self, method: str, headers: Mapping[str, str]) -> None:
        """Say something that is not answered."""
        answer = await self._post({"jsonrpc": "2.0", "method": method}, headers)
        if answer.status >= 400:
            raise RpcError(_describe_http_error(answer), code=None, status=answer.status)

    def _parse_result(self, answer: ServerResponse, number: int) -> RpcResult:
        ServerBusy.check(answer)
        if answer.status in (401, 403):
            raise TokenRejected(
                f"HTTP {answer.status}: the server does not let us in",
                where=answer.where,
                hint=TOKEN_HINT,
            )
        message = _parse_rpc_message(answer)
        # An error about a request that was not understood carries another id, or none.
        if message is not None and "error" in message:
            raise _build_rpc_error(message["error"], answer)
        if answer.status >= 500:
            raise EnvironmentFault(_describe_http_error(answer), where=answer.where)
        if answer.status != 200:
            raise RpcError(_describe_http_error(answer), code=None, status=answer.status)
        result = message.get("result") if message is not None else None
        if message is None or message.get("id") != number or not isinstance(result, dict):
            raise InvalidResponse(
                f"the answer is not JSON-RPC: {answer.excerpt}", where=answer.where
            )
        return RpcResult(result, answer.headers)

    async def _post(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> ServerResponse:
        """Post it and read until the answer is there."""
        try:
            return await self._exchange(message, headers)
        except TimeoutError:
            fault: EnvironmentFault = TimedOut(
                f"no answer to {_format_method(message)} within {self.link.timeout_s:g} s",
                where=self.link.where,
                hint=STEP_TIMEOUT_HINT,
            )
        except (aiohttp.ClientError, OSError, EOFError) as error:
            fault = self.link.build_connection_error(error)
        # Outside the handlers: the original exceptions may quote the address with its query.
        raise fault

    async def _exchange(
        self, message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ServerResponse:
        for _ in range(2):
            async with self.link.http.post(
                self.url,
                data=to_json(message),
                headers=self.link.headers(
                    {"Content-Type": "application/json", **_ACCEPT, **headers}
                ),
                timeout=aiohttp.ClientTimeout(total=self.link.timeout_s),
                allow_redirects=False,
            ) as response:
                if 300 <= response.status < 400:
                    self.url = self._resolve_slash_redirect(response)
                    continue
                return await self._read_response(response, message, headers)
        raise self._build_redirect_error(308)

    def _resolve_slash_redirect(self, response: "ClientResponse") -> str:
        """The same address with or without its last slash: what web frameworks redirect to."""
        there = urljoin(self.url, response.headers.get("Location", ""))
        old, new = urlsplit(self.url), urlsplit(there)
        same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
        if response.status not in (307, 308) or not same:
            raise self._build_redirect_error(response.status)
        if old.path.rstrip("/") != new.path.rstrip("/") or old.path == new.path:
            raise self._build_redirect_error(response.status)
        return old._replace(path=new.path).geturl()

    def _build_redirect_error(self, status: int) -> InvalidResponse:
        return InvalidResponse(
            f"HTTP {status}: the server points to another address",
            where=self.link.where,
            hint="it is not followed: give the final address",
        )

    async def _read_response(
        self, response: "ClientResponse", message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ServerResponse:
        if response.content_type == "text/event-stream" and response.status == 200:
            body = await self._await_event(response, message, headers)
        else:
            body = b"".join([piece async for piece in self._iterate_chunks(response)])
        secrets = Redactor([self.link.token or "", urlsplit(self.link.url).query])
        return ServerResponse(response.status, response.headers, body, self.link.where, secrets)

    async def _await_event(
        self, response: "ClientResponse", message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> bytes:
        """The event that answers `message`; what the server asks meanwhile is answered."""
        async for data in _parse_server_events(self._iterate_chunks(response)):
            event = _parse_json_or_none(data)
            if not isinstance(event, dict):
                raise InvalidResponse("an event is not JSON-RPC", where=self.link.where)
            if "method" not in event:
                await _drain_stream(response)
                return data
            if "id" in event:
                await self._exchange(_answer_server_request(event), headers)
        raise ConnectionFailed(
            f"the stream of events ended before the answer to {_format_method(message)}",
            where=self.link.where,
            hint="the environment server broke off; its log may say why",
        )

    async def _iterate_chunks(self, response: "ClientResponse") -> AsyncIterator[bytes]:
        size = 0
        while piece := await response.content.readany():
            size += len(piece)
            if size > MAX_SERVER_RESPONSE_BYTES:
                response.close()
                raise InvalidResponse(
                    f"the answer is longer than {MAX_SERVER_RESPONSE_BYTES} bytes",
                    where=self.link.where,
                )
            yield piece


async def _drain_stream(response: "ClientResponse") -> None:
    """Read the end of a stream, which follows the answer: only then does its connection live on."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while await response.content.readany():
                pass


async def _parse_server_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The data of each server-sent event, comments and empty events left out."""
    rest = b""
    data: list[bytes] = []
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and (whole := b"\n".join(data)):
                yield whole
            if not line:
                data = []


def _answer_server_request(asked: Mapping[str, Any]) -> dict[str, Any]:
    """What is answered to a server that asks: that we are here, and nothing else."""
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] == "ping":
        return {**answer, "result": {}}
    words = f"{asked['method']!r} is not offered during an evaluation"
    return {**answer, "error": {"code": METHOD_NOT_FOUND, "message": words}}


def _parse_json_or_none(data: bytes) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return None


def _parse_rpc_message(answer: ServerResponse) -> dict[str, Any] | None:
    value = _parse_json_or_none(answer.body)
    is_message = isinstance(value, dict) and value.get("jsonrpc") == "2.0"
    return value if is_message else None


def _build_rpc_error(error: Any, answer: ServerResponse) -> RpcError:
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(error, dict) or type(code) is not int:
        raise InvalidResponse(f"the answer is not JSON-RPC: {answer.excerpt}", where=answer.where)
    said = answer.redactor.clean(str(error.get("message", "")))
    return RpcError(said, code=code, status=answer.status, data=error.get("data"))


def _describe_http_error(answer: ServerResponse) -> str:
    return f"HTTP {answer.status}: {answer.excerpt}"


def _format_method(message: Mapping[str, Any]) -> str:
    return f"`{message.get('method', 'an answer')}`"
