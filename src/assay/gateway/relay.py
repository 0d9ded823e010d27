"""Passes calls on to a model with the agent's own API, and reads the answer on its way."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
from aiohttp import web
from pydantic_core import from_json, to_json

from assay.errors import AssayError, EndpointError, WireError
from assay.formats import EventReader, StreamEvent, make_storable
from assay.providers import Client, RequestTemplate, parse_retry_after
from assay.types import describe_error

from .dialects import AnswerStream
from .http_answers import CallRefused, EventResponse, respond_json, stream_answer
from .recorded_call import RecordedCall
from .upstream import Upstream

_MAX_ANSWER_BYTES = 64 * 1024 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_CONNECT_TIMEOUT_S = 30.0
# Of connections by which no request was sent.
_CONNECT_ERRORS = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)
# Headers of an answer that clients read. Cookies and the like stay here.
_PASSED_HEADERS = ("retry-after", "retry-after-ms", "x-should-retry", "request-id", "x-request-id")
_PASSED_PREFIXES = ("x-ratelimit-", "anthropic-ratelimit-")
# What a value of another type than the API has raises.
_SHAPE_ERRORS = (AttributeError, IndexError, KeyError, TypeError, ValueError)
_PASSED_REQUEST_HEADERS = ("anthropic-beta", "anthropic-version", "openai-beta")


class Relay:
    """Calls of agents to a model with the same API."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._http: aiohttp.ClientSession | None = None
        self._templates: dict[str, RequestTemplate] = {}

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def answer(
        self, request: web.Request, call: RecordedCall, body: Mapping[str, Any], raw: bytes
    ) -> web.StreamResponse:
        """Ask the model and respond to the agent. Raises `CallRefused`."""
        sent = self._prepare_body(call, body)
        if call.seed is not None and "seed" in call.dialect.setting_names:
            sent.setdefault("seed", call.seed)
            call.sampling.setdefault("seed", sent["seed"])
        whole = not call.streamed or self._upstream.wants_token_ids
        template = self.find_template(call.dialect.path)
        data = raw if sent == body else call.request.encode_changed(body, sent)
        if not whole:
            return await self._stream(request, call, template, data, asked=body)
        work = self._fetch(request, call, template, data)
        if call.streamed:
            return await stream_answer(request, call, body, work)
        return respond_json(await work)

    async def count_tokens(
        self, request: web.Request, path: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let the model's server count the tokens of a request. Raises `CallRefused`."""
        template = self.find_template(path)
        sent = {**body, "model": self._upstream.endpoint.model}
        async with self.request(template, to_json(sent), like=request) as response:
            return await receive_answer(response, _MAX_ERROR_BYTES)

    def _prepare_body(self, call: RecordedCall, body: Mapping[str, Any]) -> dict[str, Any]:
        """Set the model and the endpoint's settings, and ask for usage and token ids."""
        endpoint = self._upstream.endpoint
        sent = {
            **body,
            "model": endpoint.model,
            **self._upstream.list_overrides(call.dialect, body),
        }
        if call.streamed and self._upstream.wants_token_ids:
            sent["stream"] = False
            sent.pop("stream_options", None)
        elif call.streamed and call.dialect.protocol == "openai":
            # Without it, a stream has no usage.
            options = body.get("stream_options")
            kept = options if isinstance(options, dict) else {}
            if not asks_for_usage(body):
                sent["stream_options"] = {**kept, "include_usage": True}
        call.sampling = self._upstream.read_sampling(sent)
        return sent

    def find_template(self, path: str) -> RequestTemplate:
        """Return address and headers of a path of the model's API."""
        found = self._templates.get(path)
        if found is None:
            found = self._upstream.build_template(path)
            assert found is not None
            self._templates[path] = found
        return found

    def _post(
        self, template: RequestTemplate, data: bytes, *, like: web.Request | None, query: str
    ) -> "aiohttp.client._RequestContextManager":
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                auto_decompress=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                # Those of all paths of the model's API.
                headers=template.headers,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CONNECT_TIMEOUT_S, sock_read=template.timeout_s
                ),
            )
        headers = {}
        if like is not None:
            given = like.headers
            headers = {name: given[name] for name in _PASSED_REQUEST_HEADERS if name in given}
            query = like.query_string if "beta=" in like.query_string else ""
        url, proxy = template.url, template.proxy
        if query:
            url += f"&{query}" if "?" in url else f"?{query}"
        return self._http.post(
            url,
            data=data,
            headers=headers,
            # A redirect could lead the key to another server.
            allow_redirects=False,
            proxy=None if proxy is None else proxy.url,
            proxy_headers=None if proxy is None else proxy.credentials,
        )

    @asynccontextmanager
    async def request(
        self,
        template: RequestTemplate,
        data: bytes,
        *,
        like: web.Request | None = None,
        query: str = "",
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Make one request within the concurrency limit of the model.

        With `like`, the options in the headers and the query of an agent's request are passed on.
        Raises `CallRefused` for an error status and a failed connection.
        """
        client = self._get_client()
        await client.limiter.acquire()
        started, status = time.perf_counter(), None
        try:
            async with self._post(template, data, like=like, query=query) as response:
                status = response.status
                # Until the first byte: how long a stream takes is up to its answer.
                client.record_request(latency_s=time.perf_counter() - started, status=status)
                if status != 200:
                    received = await _read_limited(response, _MAX_ERROR_BYTES)
                    raise _build_refusal(response, received, template)
                yield response
        except CallRefused as refused:
            refused.is_free = status != 200
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if status is None:
                client.record_request(latency_s=time.perf_counter() - started, status=None)
            refusal = _build_connection_refusal(error)
            refusal.is_free = status is None and isinstance(error, _CONNECT_ERRORS)
            raise refusal from None
        finally:
            client.limiter.release()

    async def _fetch(
        self, request: web.Request, call: RecordedCall, template: RequestTemplate, data: bytes
    ) -> dict[str, Any]:
        async with self.request(template, data, like=request) as response:
            answer = await receive_answer(response)
        call.note_first_byte()
        self._record(call, answer)
        return answer

    async def _stream(
        self,
        request: web.Request,
        call: RecordedCall,
        template: RequestTemplate,
        data: bytes,
        *,
        asked: Mapping[str, Any],
    ) -> web.StreamResponse:
        async with self.request(template, data, like=request) as response:
            if response.content_type == "text/html":
                # The page of a web server at a wrong address: no client can read it as events.
                raise CallRefused(502, "the model answered with an HTML page; check its address")
            if "json" not in response.content_type:
                return await self._pass_events(request, call, response, asked)
            # Some servers ignore `stream`.
            answer = await receive_answer(response)
        self._record(call, answer)
        return await stream_answer(request, call, asked, answer)

    async def _pass_events(
        self,
        request: web.Request,
        call: RecordedCall,
        upstream: aiohttp.ClientResponse,
        asked: Mapping[str, Any],
    ) -> web.StreamResponse:
        response = EventResponse(request, _list_passed_headers(upstream))
        # The headers are sent alone only where the model makes the agent wait for the first event.
        await response.start(at_once=upstream.content.total_bytes == 0)
        reader, stream = EventReader(), call.dialect.make_stream()
        # The gateway asks for the usage of chat completions, also where the agent does not.
        hides_usage = call.dialect.protocol == "openai" and not asks_for_usage(asked)
        try:
            with translate_stream_errors():
                async for chunk in upstream.content.iter_any():
                    check_answer_size(upstream)
                    call.note_first_byte()
                    events = reader.feed(chunk)
                    # Whole events only: an error can be written after each of them.
                    passed = b"".join(
                        event.raw for event in events if not (hides_usage and _is_usage(event))
                    )
                    if passed:
                        # Without the key of the model, which servers quote in errors.
                        shown = call.hide_secrets(passed)
                        await response.write(shown, is_last=upstream.content.at_eof())
                    for event in events:
                        stream.add(event)
                if reader.rest:
                    await response.write(reader.rest)
                if stream.error is not None:
                    # The agent has read the error. Its bytes are those of the model's server.
                    problem = f"the model reported an error in the stream: {stream.error}"
                    call.fail(problem[:500], status=200)
                    return await response.end()
                answer = build_streamed_answer(stream)
        except CallRefused as refused:
            call.fail(refused.message, status=200)
            raise
        self._record(call, answer)
        return await response.end()

    def _record(self, call: RecordedCall, answer: dict[str, Any]) -> None:
        index = len(call.request.items or ())
        _check_items(answer.get("output"))
        try:
            reply = self._get_client().read_answer(
                answer, latency_s=call.elapsed_s, message_index=index
            )
        except EndpointError as error:
            raise CallRefused(502, f"the answer of the model is invalid: {error.message}") from None
        except AssayError as error:
            raise CallRefused(502, describe_error(error)) from None
        call.finish(answer, reply)

    def _get_client(self) -> Client:
        client = self._upstream.client
        assert isinstance(client, Client)
        return client


@contextmanager
def translate_stream_errors() -> Iterator[None]:
    """Raise `CallRefused` for a stream of the model that breaks or that cannot be read."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        # Some agents, such as Pi, try again after errors with certain words only.
        problem = f"connection lost: the stream of the model broke ({type(error).__name__})"
    except WireError as error:
        problem = error.message
    except _SHAPE_ERRORS as error:
        problem = f"an event of the model's stream is invalid ({type(error).__name__})"
    else:
        return
    raise CallRefused(502, problem, code="upstream_error")


def build_streamed_answer(stream: AnswerStream) -> dict[str, Any]:
    """Return the answer of a stream. Raises `CallRefused` if it ended early."""
    if not stream.is_complete:
        raise CallRefused(
            502, "the stream of the model ended without its last event", code="upstream_error"
        )
    return stream.build_answer()


def asks_for_usage(body: Mapping[str, Any]) -> bool:
    """Whether an agent asks for the usage at the end of a stream of chat completions."""
    options = body.get("stream_options")
    return isinstance(options, Mapping) and bool(options.get("include_usage"))


def _is_usage(event: StreamEvent) -> bool:
    # Searched as text first: nearly every event has choices.
    return b'"usage"' in event.data and b'"choices":[]' in event.data.replace(b" ", b"")


async def receive_answer(
    response: aiohttp.ClientResponse, limit: int = _MAX_ANSWER_BYTES
) -> dict[str, Any]:
    """Return the whole answer of the model. Raises `CallRefused` if it is too large or invalid."""
    data = await _read_limited(response, limit)
    try:
        answer = from_json(data)
    except ValueError:
        answer = parse_surrogates(data)
    if not isinstance(answer, dict):
        raise CallRefused(502, "the answer of the model is not a JSON object")
    return answer


def parse_surrogates(raw: bytes) -> Any:
    """Parse JSON with half characters, replaced; None for other faults.

    Agents in JavaScript write them where they cut the output of a tool inside an emoji, and servers
    where the limit of tokens cuts the answer of a model.
    """
    if b"\\ud" not in raw.lower():
        return None
    try:
        return make_storable(json.loads(raw))
    except (ValueError, RecursionError):
        return None


def check_answer_size(response: aiohttp.ClientResponse, limit: int = _MAX_ANSWER_BYTES) -> None:
    """Raise `CallRefused` if more bytes of an answer have arrived than the gateway keeps."""
    if response.content.total_bytes > limit:
        raise CallRefused(502, f"the answer of the model has more than {limit:,} bytes")


async def _read_limited(response: aiohttp.ClientResponse, limit: int) -> bytes:
    parts: list[bytes] = []
    async for part in response.content.iter_any():
        parts.append(part)
        if response.status == 200:
            check_answer_size(response, limit)
        elif response.content.total_bytes > limit:
            break
    return b"".join(parts)


def _check_items(items: object) -> None:
    """Refuse the output of the Responses API unless its items and their parts are objects."""
    if not isinstance(items, list):
        return
    contents = [item.get("content") if isinstance(item, dict) else item for item in items]
    parts = [part for each in contents if isinstance(each, list) for part in each]
    if not all(isinstance(each, dict) for each in (*items, *parts)):
        raise CallRefused(502, "the answer of the model has no object where one belongs")


def _list_passed_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    return {
        name: value
        for name, value in response.headers.items()
        if name.lower() in _PASSED_HEADERS or name.lower().startswith(_PASSED_PREFIXES)
    }


def _build_refusal(
    response: aiohttp.ClientResponse, data: bytes, template: RequestTemplate
) -> CallRefused:
    # Cleaned: servers quote the key that they refuse.
    text = template.redactor.clean(data.decode("utf-8", "replace"), cut=True)
    if 300 <= response.status < 400:
        problem = "the server of the model redirects, and redirects are not followed"
        return CallRefused(502, problem, code="upstream_error")
    message, code = text[:2000] or f"the model answered {response.status} without a body", None
    try:
        error = from_json(text).get("error")
    except (ValueError, AttributeError):
        error = None
    if isinstance(error, dict):
        message = str(error.get("message") or message)
        code = error.get("code") if isinstance(error.get("code"), str) else error.get("type")
    elif isinstance(error, str):
        message = error
    # Again: in JSON, an escape such as `\/` may have hidden the key.
    message = template.redactor.clean(message)
    headers = _list_passed_headers(response)
    after = parse_retry_after(
        headers.pop("Retry-After", None) or headers.pop("retry-after", None),
        milliseconds=headers.get("retry-after-ms"),
        now=time.time(),
    )
    status = response.status if 400 <= response.status < 600 else 502
    return CallRefused(status, message, code=code, retry_after_s=after, headers=headers)


def _build_connection_refusal(error: BaseException) -> CallRefused:
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return CallRefused(504, "the model did not answer in time", code="upstream_timeout")
    # The message of the error itself contains the address.
    kind = type(error).__name__
    return CallRefused(502, f"the model cannot be reached ({kind})", code="upstream_error")
