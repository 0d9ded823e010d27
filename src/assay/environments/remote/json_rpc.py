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

from .http_client import (
    STEP_TIMEOUT_HINT,
    TOKEN_HINT,
    ConnectionFailed,
    EnvironmentClient,
    InvalidResponse,
    ServerBusy,
    ServerResponse,
    TimedOut,
)

if TYPE_CHECKING:
    from aiohttp import ClientResponse

METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603

# The end of a stream normally arrives with the answer; longer waits would delay every step.
_DRAIN_S = 0.1
_ACCEPT = {"Accept": "application/json, text/event-stream"}


@dataclass(eq=False)
class RpcError(Exception):
    """The server refused a request. `code` is None for a plain HTTP error."""

    message: str
    code: int | None
    status: int
    data: Any = None


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
        ServerBusy.check(answer)
        if answer.status in (401, 403):
            raise TokenRejected(
                f"the server denies access (HTTP {answer.status})",
                where=answer.where,
                hint=TOKEN_HINT,
            )
        value = _parse_json_or_none(answer.body)
        message = value if isinstance(value, dict) and value.get("jsonrpc") == "2.0" else {}
        # Not matched by id: an error about an unparsable request has another id, or none.
        error = message.get("error")
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(error, dict) and type(code) is int:
            text = answer.redactor.clean(str(error.get("message", "")))
            raise RpcError(text, code=code, status=answer.status, data=error.get("data"))
        if "error" not in message:
            if answer.status >= 500:
                raise EnvironmentFault(answer.summary, where=answer.where)
            if answer.status != 200:
                raise RpcError(answer.summary, code=None, status=answer.status)
            result = message.get("result")
            if message.get("id") == number and isinstance(result, dict):
                return RpcResult(result, answer.headers)
        raise InvalidResponse(f"the answer is not JSON-RPC: {answer.excerpt}", where=answer.where)

    async def notify(self, method: str, headers: Mapping[str, str]) -> None:
        """Send a notification, which has no answer."""
        answer = await self._post({"jsonrpc": "2.0", "method": method}, headers)
        if answer.status >= 400:
            raise RpcError(answer.summary, code=None, status=answer.status)

    async def _post(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> ServerResponse:
        """Post a message and read until its answer."""
        try:
            # Of all requests together: a server may ask something before it answers.
            async with asyncio.timeout(self.client.timeout_s):
                return await self._exchange(message, headers)
        except TimeoutError:
            fault: EnvironmentFault = TimedOut(
                f"the server did not answer `{message.get('method', 'an answer')}` within "
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
        # Twice: after a redirect that only adds or removes the last slash, as web frameworks do.
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
                    old = urlsplit(self.url)
                    new = urlsplit(urljoin(self.url, response.headers.get("Location", "")))
                    same = (old.scheme, old.netloc) == (new.scheme, new.netloc)
                    same = same and old.path.rstrip("/") == new.path.rstrip("/")
                    if response.status not in (307, 308) or not same or old.path == new.path:
                        raise self.client.build_redirect_error(response.status)
                    self.url = old._replace(path=new.path).geturl()
                    continue
                if response.content_type == "text/event-stream" and response.status == 200:
                    # Only requests are answered: in the stream after an answer, the server could
                    # ask again and again.
                    is_request = "method" in message
                    body = b""
                    if is_request:
                        body = await self._await_event(response, message, headers)
                else:
                    chunks = self.client.iterate_chunks(response)
                    body = b"".join([piece async for piece in chunks])
                return ServerResponse(
                    response.status,
                    response.headers,
                    body,
                    self.client.where,
                    self.client.redactor,
                )
        raise self.client.build_redirect_error(308)

    async def _await_event(
        self, response: "ClientResponse", message: Mapping[str, Any], headers: Mapping[str, str]
    ) -> bytes:
        """Return the event that answers `message`; requests of the server are answered."""
        async for data in _parse_server_events(self.client.iterate_chunks(response)):
            event = _parse_json_or_none(data)
            if not isinstance(event, dict):
                raise InvalidResponse("an event is not JSON-RPC", where=self.client.where)
            # Without a method it is an answer; everything else comes from the server itself.
            if "method" not in event:
                # Read to the end, so that the connection can be reused.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_DRAIN_S):
                        while await response.content.readany():
                            pass
                return data
            if "id" in event:
                answer: dict[str, Any] = {"jsonrpc": "2.0", "id": event["id"], "result": {}}
                if event["method"] != "ping":
                    words = f"{event['method']!r} is not supported during an evaluation"
                    del answer["result"]
                    answer["error"] = {"code": METHOD_NOT_FOUND, "message": words}
                await self._exchange(answer, headers)
        raise ConnectionFailed(
            "the stream of events ended before the answer to "
            f"`{message.get('method', 'an answer')}`",
            where=self.client.where,
            hint="the environment server closed the stream; see its log",
        )


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


def _parse_json_or_none(data: bytes) -> Any:
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return None
