"""JSON-RPC over HTTP for MCP: one POST per request, answered as JSON or as an event stream."""

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

# The end of a stream normally arrives with the answer; longer waits would delay every step.
_DRAIN_S = 0.1
# Identity: avoids the cost of decompression, and zip bombs.
_ACCEPT = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}


class RpcError(Exception):
    """The server refused a request. `code` is None for a plain HTTP error."""

    def __init__(self, message: str, *, code: int | None, status: int, data: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.status = status
        self.data = data


class TokenRejected(EnvironmentFault):
    """The server requires a token, or another one."""


@dataclass(frozen=True, slots=True)
class RpcResult:
    """The result of a request, and the headers of its answer."""

    value: Mapping[str, Any]
    headers: Mapping[str, str]


class JsonRpc:
    """Requests to one URL. Never retries: a lost request may have been executed."""

    def __init__(self, client: EnvironmentClient, url: str) -> None:
        self.client = client
        self.url = url
        self._numbers = itertools.count(1)

    async def call(
        self, method: str, params: Mapping[str, Any], headers: Mapping[str, str]
    ) -> RpcResult:
        """Send a request and return its result.

        Raises `RpcError` if the server refuses it, `ServerBusy` if it has no free session, and
        `EnvironmentFault` if the answer is missing or invalid.
        """
        number = next(self._numbers)
        request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        answer = await self._post(request, headers)
        return self._parse_result(answer, number)

    async def notify(self, method: str, headers: Mapping[str, str]) -> None:
        """Send a notification, which has no answer."""
        answer = await self._post({"jsonrpc": "2.0", "method": method}, headers)
        if answer.status >= 400:
            raise RpcError(_describe_http_error(answer), code=None, status=answer.status)

    def _parse_result(self, answer: ServerResponse, number: int) -> RpcResult:
        ServerBusy.check(answer)
        if answer.status in (401, 403):
            raise TokenRejected(
                f"the server denies access (HTTP {answer.status})",
                where=answer.where,
                hint=TOKEN_HINT,
            )
        value = _parse_json_or_none(answer.body)
        message = value if isinstance(value, dict) and value.get("jsonrpc") == "2.0" else None
        # Not matched by id: an error about an unparsable request has another id, or none.
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
        """Post a message and read until its answer."""
        try:
            return await self._exchange(message, headers)
        except TimeoutError:
            fault: EnvironmentFault = TimedOut(
                f"the server did not answer {_format_method(message)} within "
                f"{self.client.timeout_s:g} s",
                where=self.client.where,
                hint=STEP_TIMEOUT_HINT,
            )
        except (aiohttp.ClientError, OSError, EOFError) as error:
            fault = self.client.build_connection_error(error)
        # Outside the handlers: the original exceptions may quote the URL with its query.
        raise fault

    async def _exchange(
        self, message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ServerResponse:
        # Twice: after a redirect that only adds or removes the last slash.
        for _ in range(2):
            async with self.client.http.post(
                self.url,
                data=to_json(message),
                headers=self.client.headers(
                    {"Content-Type": "application/json", **_ACCEPT, **headers}
                ),
                timeout=aiohttp.ClientTimeout(total=self.client.timeout_s),
                allow_redirects=False,
            ) as response:
                if 300 <= response.status < 400:
                    self.url = self._resolve_slash_redirect(response)
                    continue
                return await self._read_response(response, message, headers)
        raise self._build_redirect_error(308)

    def _resolve_slash_redirect(self, response: "ClientResponse") -> str:
        """Return the redirected URL if only its last slash differs, as from web frameworks."""
        target = urljoin(self.url, response.headers.get("Location", ""))
        old, new = urlsplit(self.url), urlsplit(target)
        same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
        if response.status not in (307, 308) or not same:
            raise self._build_redirect_error(response.status)
        if old.path.rstrip("/") != new.path.rstrip("/") or old.path == new.path:
            raise self._build_redirect_error(response.status)
        return old._replace(path=new.path).geturl()

    def _build_redirect_error(self, status: int) -> InvalidResponse:
        return InvalidResponse(
            f"the server redirects to another address (HTTP {status})",
            where=self.client.where,
            hint="redirects are not followed: pass the final address",
        )

    async def _read_response(
        self, response: "ClientResponse", message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> ServerResponse:
        if response.content_type == "text/event-stream" and response.status == 200:
            body = await self._await_event(response, message, headers)
        else:
            body = b"".join([piece async for piece in self._iterate_chunks(response)])
        secrets = Redactor([self.client.token or "", urlsplit(self.client.url).query])
        return ServerResponse(response.status, response.headers, body, self.client.where, secrets)

    async def _await_event(
        self, response: "ClientResponse", message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> bytes:
        """Return the event that answers `message`; requests of the server are answered."""
        async for data in _parse_server_events(self._iterate_chunks(response)):
            event = _parse_json_or_none(data)
            if not isinstance(event, dict):
                raise InvalidResponse("an event is not JSON-RPC", where=self.client.where)
            # Without a method it is an answer; everything else comes from the server itself.
            if "method" not in event:
                await _drain_stream(response)
                return data
            if "id" in event:
                await self._exchange(_answer_server_request(event), headers)
        raise ConnectionFailed(
            f"the stream of events ended before the answer to {_format_method(message)}",
            where=self.client.where,
            hint="the environment server closed the stream; see its log",
        )

    async def _iterate_chunks(self, response: "ClientResponse") -> AsyncIterator[bytes]:
        size = 0
        while piece := await response.content.readany():
            size += len(piece)
            if size > MAX_SERVER_RESPONSE_BYTES:
                response.close()
                raise InvalidResponse(
                    f"the answer is longer than {MAX_SERVER_RESPONSE_BYTES} bytes",
                    where=self.client.where,
                )
            yield piece


async def _drain_stream(response: "ClientResponse") -> None:
    """Read the end of a stream after the answer, so that its connection can be reused."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_DRAIN_S):
            while await response.content.readany():
                pass


async def _parse_server_events(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the data of each server-sent event, without comments and empty events."""
    rest = b""
    data: list[bytes] = []
    async for piece in pieces:
        # A chunk may end inside a line: the rest waits for the next one.
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            line = line.rstrip(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
            elif not line and (whole := b"\n".join(data)):
                yield whole
            if not line:
                data = []


def _answer_server_request(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request of the server: only `ping` is supported."""
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
    if request["method"] == "ping":
        return {**answer, "result": {}}
    words = f"{request['method']!r} is not supported during an evaluation"
    return {**answer, "error": {"code": METHOD_NOT_FOUND, "message": words}}


def _parse_json_or_none(data: bytes) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return None


def _build_rpc_error(error: Any, answer: ServerResponse) -> RpcError:
    code = error.get("code") if isinstance(error, dict) else None
    if not isinstance(error, dict) or type(code) is not int:
        raise InvalidResponse(f"the answer is not JSON-RPC: {answer.excerpt}", where=answer.where)
    message = answer.redactor.clean(str(error.get("message", "")))
    return RpcError(message, code=code, status=answer.status, data=error.get("data"))


def _describe_http_error(answer: ServerResponse) -> str:
    return f"HTTP {answer.status}: {answer.excerpt}"


def _format_method(message: Mapping[str, Any]) -> str:
    return f"`{message.get('method', 'an answer')}`"
