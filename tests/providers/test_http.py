"""One attempt against a real server that misbehaves, and the connections that all share."""

import asyncio
import gc
import gzip
import socket
import ssl
import zlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ClientSettings, Reply, connect
from assay.providers import http as http_module
from assay.providers.attempt_errors import AttemptError, ErrorKind
from assay.providers.connection import build_request_template
from assay.providers.error_bodies import parse_error_body
from assay.providers.http import HttpEndpoint
from assay.providers.pool import ConnectTimeout
from assay.types import Endpoint
from model_server import (
    ASK,
    OK,
    Behaviour,
    ModelServer,
    ToldTime,
    answers,
    half_closes,
    hangs,
    hangs_up,
    resets_mid_body,
    said,
    streams_forever,
    wait_until,
)
from tls_certificates import LOOPBACK, certificate

ONCE = ClientSettings(max_retries=0, concurrency=5)


def failing(behaviour: Behaviour, timeout_s: float = 5.0, **fields: Any) -> AttemptError:
    """What one attempt fails of."""

    async def scenario() -> AttemptError:
        async with ModelServer(behaviour) as server:
            endpoint = server.endpoint(**fields)
            line = HttpEndpoint(
                build_request_template(endpoint, "/chat/completions", timeout_s=timeout_s)
            )
            try:
                with pytest.raises(AttemptError) as caught:
                    await line.post(b"{}")
            finally:
                await line.close()
            return caught.value

    return asyncio.run(scenario())


@pytest.mark.parametrize("behaviour", [resets_mid_body, half_closes, hangs_up])
def test_a_connection_that_breaks_is_worth_another_attempt(behaviour: Behaviour) -> None:
    fault = failing(behaviour)

    assert fault.kind is ErrorKind.UNREACHABLE
    assert fault.message.startswith("the connection ")


def test_nobody_listening_is_said_so() -> None:
    async def scenario() -> AttemptError:
        async with ModelServer(OK) as server:
            endpoint = server.endpoint()
        line = HttpEndpoint(build_request_template(endpoint, "/x", timeout_s=5))
        with pytest.raises(AttemptError) as caught:
            await line.post(b"{}")
        await line.close()
        return caught.value

    fault = asyncio.run(scenario())

    assert fault.kind is ErrorKind.UNREACHABLE
    assert "the connection failed" in fault.message


def test_a_server_that_never_answers_runs_into_the_timeout() -> None:
    fault = failing(hangs, timeout_s=0.05)

    assert (fault.kind, fault.message) == (ErrorKind.TIMEOUT, "the request timed out after 0.05 s")


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b'{"choices": [', b"\xff\xfe", b"[" * 100_000, b'"\\ud83d' + b"[" * 100_000],
)
def test_an_answer_that_is_not_json_is_no_crash(body: bytes) -> None:
    fault = failing(answers(body))

    assert fault.kind is ErrorKind.GARBLED
    assert fault.message.startswith("the answer is not JSON: ")
    assert len(fault.message) < 400


def test_an_html_page_is_quoted_without_its_markup() -> None:
    page = b"<html><script>steal()</script><h1>502 Bad\x1b[31m Gateway</h1>\n<p>nginx</p></html>"

    fault = failing(answers(page, 502))

    assert (fault.kind, fault.status) == (ErrorKind.OVERLOADED, 502)
    assert fault.message == "HTTP 502: 502 Bad [31m Gateway nginx"


def test_a_page_keeps_its_words_and_loses_its_code() -> None:
    page = b"<STYLE>a</style >one<script>if (a < b) { </style> }</script>two <b\n>three<script>x"

    assert failing(answers(page, 500)).message == "HTTP 500: one two three"


@pytest.mark.parametrize("piece", [b"<", b"<script>", b"<script ", b"</style>", b"<a <b "])
def test_a_hostile_page_is_read_in_one_pass(piece: bytes) -> None:
    # Looking for the end of each tag in the whole rest would take hours.
    assert len(parse_error_body(piece * 1_000_000).text) <= len(piece) * 1_000_000 + 2


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no such model", "type": "invalid", "code": 7}}, "invalid: 7: no"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "overloaded"),
        ({"error": "plain words"}, "plain words"),
        ({"message": "at the top"}, "at the top"),
        ({"detail": [{"msg": "missing"}]}, '{"detail":[{"msg":"missing"}]}'),
        ([1, 2], "[1,2]"),
        (b"", "(empty body)"),
    ],
)
def test_an_error_body_is_quoted_in_its_own_words(body: Any, words: str) -> None:
    assert failing(answers(body, 400)).message.startswith(f"HTTP 400: {words}")


def test_a_long_error_body_is_cut_and_says_so() -> None:
    fault = failing(answers(b"word " * 1_000_000, 500))

    assert len(fault.message) < 330
    assert fault.message.endswith("…")


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MAX_RESPONSE_BYTES", 1_000_000)

    assert failing(streams_forever).message == "the answer is longer than 1000000 bytes"


def test_a_packed_answer_is_measured_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "MAX_RESPONSE_BYTES", 1_000_000)
    bomb = gzip.compress(b" " * 20_000_000)

    fault = failing(answers(bomb, Content_Encoding="gzip"))

    assert fault.message == "the answer is longer than 1000000 bytes"


@pytest.mark.parametrize(
    ("packing", "body"),
    [
        ("gzip", gzip.compress(b'"word"', mtime=0)),
        ("X-GZIP ", gzip.compress(b'"word"', mtime=0)),
        ("deflate", zlib.compress(b'"word"')),
        ("identity", b'"word"'),
        ("gzip", gzip.compress(b'"wo', mtime=0) + gzip.compress(b'rd"', mtime=0)),
        ("gzip", gzip.compress(b'"word"', mtime=0) + bytes(8)),
    ],
)
def test_an_answer_that_is_packed_all_the_same_is_read(packing: str, body: bytes) -> None:
    fault = failing(answers(body, 400, Content_Encoding=packing))

    assert fault.message == "HTTP 400: word"


def test_an_answer_packed_in_many_members_is_measured_unpacked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http_module, "MAX_RESPONSE_BYTES", 1_000_000)
    bomb = gzip.compress(b" " * 100_000, mtime=0) * 11

    fault = failing(answers(bomb, Content_Encoding="gzip"))

    assert fault.message == "the answer is longer than 1000000 bytes"


@pytest.mark.parametrize("packing", ["br", "gzip, br", "gzip"])
def test_an_answer_packed_in_an_unknown_way_says_so(packing: str) -> None:
    fault = failing(answers(b"\x0b\x02\x80", Content_Encoding=packing))

    assert fault.kind is ErrorKind.GARBLED
    assert f"(content encoding {packing!r} cannot be decoded)" in fault.message


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as elsewhere:
            moved = answers(b"", status, Location=f"{elsewhere.url}/chat/completions")
            async with ModelServer(moved) as server, connect(server.endpoint()) as client:
                with pytest.raises(
                    EndpointError, match="the server redirects, and redirects are not followed"
                ):
                    await client.complete(ASK)
                assert len(server.asked) == 1
            assert elsewhere.asked == []

    asyncio.run(scenario())


def test_a_success_without_an_answer_is_garbled() -> None:
    assert failing(answers(b"", 204)).kind is ErrorKind.GARBLED


def test_an_empty_account_is_not_waited_for() -> None:
    body = {"error": {"type": "insufficient_quota", "message": "You exceeded your quota"}}

    fault = failing(answers(body, 429))

    assert fault.permanent
    assert fault.hint == "the account has no credit left"


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_names_the_variable_to_set(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    fault = failing(answers({"error": {"message": "bad key"}}, status), api_key="")

    assert fault.kind is ErrorKind.DENIED
    assert fault.hint is not None
    assert fault.hint.startswith("OPENAI_API_KEY is not set: set it")
    assert ("the server forbids this model or request" in fault.hint) == (status == 403)


def test_a_denial_whose_words_are_cut_off_is_still_a_denial() -> None:
    async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 500\r\n\r\n{")
        await writer.drain()
        writer.close()

    fault = failing(cut_off)

    assert (fault.kind, fault.message) == (ErrorKind.DENIED, "HTTP 401: (empty body)")


def replied(body: bytes) -> Reply:
    async def scenario() -> Reply:
        async with ModelServer(answers(body)) as server, connect(server.endpoint()) as client:
            return await client.complete(ASK)

    return asyncio.run(scenario())


def test_half_an_emoji_does_not_spoil_an_answer() -> None:
    reply = replied(
        b'{"choices": [{"message": {"content": "Hi \\ud83d", "refusal": "No \\ud83d"},'
        b' "finish_reason": "\\ud83d"}]}'
    )

    assert reply.message.text == "Hi \ufffd"
    assert reply.message.model_extra == {"refusal": "No \ufffd"}
    assert reply.call.finish_reason == "\ufffd"


def test_an_answer_that_is_marked_as_utf_8_is_read() -> None:
    reply = replied(b'\xef\xbb\xbf{"choices": [{"message": {"content": "Hi \xc3\xa4"}}]}')

    assert reply.message.text == "Hi ä"


def test_no_connection_in_time_is_said_with_what_to_check() -> None:
    fault = http_module.build_connection_error(ConnectTimeout("connecting timed out after 30 s"))

    assert (fault.kind, fault.message) == (ErrorKind.UNREACHABLE, "connecting timed out after 30 s")
    assert fault.hint is not None
    assert "http or https" in fault.hint


def test_a_wrong_certificate_is_not_tried_again() -> None:
    fault = http_module.build_connection_error(ssl.SSLCertVerificationError("self-signed"))

    assert fault.permanent
    assert "certificate is not valid" in fault.message


def test_a_server_with_a_certificate_of_its_own_is_asked_only_once_it_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, tls = certificate(tmp_path, LOOPBACK)

    async def scenario() -> None:
        # What a refused handshake does to this test's server is not its subject.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with ModelServer(OK, tls=tls) as server:
            async with connect(server.endpoint()) as client:
                with pytest.raises(EndpointError, match="certificate is not valid") as caught:
                    await client.complete(ASK)
            assert (caught.value.retryable, server.asked) == (False, [])
            monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            async with connect(server.endpoint()) as client:
                assert (await client.complete(ASK)).message.text == "Hello."

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            ConnectionRefusedError(111, "Connect call failed ('10.9.8.7', 443)"),
            "the connection failed (ConnectionRefusedError: Connection refused)",
        ),
        (
            socket.gaierror(socket.EAI_NONAME, "Name or service not known"),
            "the connection failed (gaierror: Name or service not known)",
        ),
        (OSError("Multiple exceptions: ('10.9.8.7', 443)"), "the connection failed (OSError)"),
        (ssl.SSLError(1, "[SSL] 10.9.8.7"), "the connection failed (SSLError)"),
    ],
)
def test_what_broke_is_told_without_the_address(error: OSError, message: str) -> None:
    fault = http_module.build_connection_error(error)

    assert (fault.kind, fault.message) == (ErrorKind.UNREACHABLE, message)


def sent(**fields: Any) -> dict[str, str]:
    """The headers of a request as a server saw them."""

    async def scenario() -> dict[str, str]:
        async with ModelServer(OK) as server, connect(server.endpoint(**fields)) as client:
            await client.complete(ASK)
            return {**server.asked[0].headers, "path": server.asked[0].path, "url": server.url}

    return asyncio.run(scenario())


def test_a_request_says_whom_it_is_for_and_how_long_it_is() -> None:
    headers = sent()

    assert headers["host"] == headers["url"].split("/")[2]
    assert headers["content-type"] == headers["accept"] == "application/json"
    assert headers["accept-encoding"] == "identity"
    assert headers["authorization"] == "Bearer k-1234"
    assert headers["path"] == "/v1/chat/completions"


def test_own_headers_come_before_the_usual_ones() -> None:
    headers = sent(headers={"HOST": "behind-a-proxy", "user-agent": "mine", "X-Name": "Zoë"})

    assert (headers["host"], headers["user-agent"]) == ("behind-a-proxy", "mine")
    assert headers["x-name"].encode("latin-1").decode() == "Zoë"


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding"])
def test_a_header_that_would_belie_the_request_is_refused(name: str) -> None:
    with pytest.raises(
        ConfigError, match=f"the header '{name}' cannot be set: the client computes it"
    ):
        connect(Endpoint(provider="vllm", model="m", headers={name: "5"}))


@pytest.mark.parametrize(
    ("api_base", "origin", "start"),
    [
        ("https://api.test/v1", ("api.test", 443, True), "/v1/x HTTP/1.1\r\nHost: api.test\r\n"),
        ("http://api.test", ("api.test", 80, False), "/x HTTP/1.1\r\nHost: api.test\r\n"),
        ("http://[::1]:8000/v1", ("::1", 8000, False), "/v1/x HTTP/1.1\r\nHost: [::1]:8000\r\n"),
        ("https://[::1]/v1", ("::1", 443, True), "/v1/x HTTP/1.1\r\nHost: [::1]\r\n"),
        (
            "https://Bücher.test:444/a%20b?key=c%2Fd&e",
            ("xn--bcher-kva.test", 444, True),
            "/a%20b/x?key=c%2Fd&e HTTP/1.1\r\nHost: xn--bcher-kva.test:444\r\n",
        ),
        (
            "http://user:word@h.test/ü",
            ("h.test", 80, False),
            "/%C3%BC/x HTTP/1.1\r\nHost: h.test\r\n",
        ),
    ],
)
def test_an_address_is_called_as_it_was_given(
    api_base: str, origin: tuple[str, int, bool], start: str
) -> None:
    endpoint = Endpoint(provider="openai-compatible", model="m", api_base=api_base)

    http = HttpEndpoint(build_request_template(endpoint, "/x", timeout_s=1))

    assert http._origin == origin
    assert http._head.startswith(start.encode())


def test_clients_of_one_event_loop_share_connections_until_the_last_is_closed() -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as server:
            first, second = connect(server.endpoint()), connect(server.endpoint(model="n"))
            await first.complete(ASK)
            await second.complete(ASK)
            assert server.connections == 1
            await first.close()
            await second.complete(ASK)
            assert server.connections == 1
            await second.close()
            await wait_until(lambda: server.open == 0)
            assert asyncio.get_running_loop() not in http_module._SHARED_POOLS

    asyncio.run(scenario())


def test_a_closed_client_says_so() -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as server:
            client = connect(server.endpoint(), ONCE)
            await client.complete(ASK)
            await client.close()
            await client.close()
            with pytest.raises(EndpointError, match="the client is closed"):
                await client.complete(ASK)

    asyncio.run(scenario())


def test_a_client_of_another_event_loop_says_so() -> None:
    async def first() -> Any:
        async with ModelServer(OK) as server:
            client = connect(server.endpoint(), ONCE)
            await client.complete(ASK)
            # Closed behind the client's back, so that this test leaves nothing open.
            await http_module._SHARED_POOLS[asyncio.get_running_loop()].pool.close()
            return client

    client = asyncio.run(first())

    with pytest.raises(ConfigError, match="was first used in another event loop"):
        asyncio.run(client.complete(ASK))


def test_connecting_sends_nothing() -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as server:
            client = connect(server.endpoint())
            await client.close()
            assert server.connections == 0

    asyncio.run(scenario())


Scenario = Callable[[ModelServer], Coroutine[Any, Any, None]]


def leaves_nothing(behaviour: Behaviour, scenario: Scenario) -> None:
    """Run a scenario and see that no task or connection outlives it."""

    async def whole() -> None:
        before = asyncio.all_tasks()
        async with ModelServer(behaviour) as server:
            await scenario(server)
            await wait_until(lambda: server.open == 0)
        await wait_until(lambda: asyncio.all_tasks() == before)
        assert asyncio.get_running_loop() not in http_module._SHARED_POOLS

    asyncio.run(whole())
    gc.collect()


def test_a_timeout_leaves_nothing_behind_and_harms_nobody_else() -> None:
    async def scenario(server: ModelServer) -> None:
        async with ModelServer(OK) as healthy:
            slow = connect(server.endpoint(timeout_s=0.05), ONCE)
            fast = connect(healthy.endpoint(), ONCE)
            outcomes = await asyncio.gather(
                *(slow.complete(ASK) for _ in range(5)),
                *(fast.complete(ASK) for _ in range(5)),
                return_exceptions=True,
            )
            await slow.close()
            await fast.close()
        assert [isinstance(each, EndpointError) for each in outcomes] == [True] * 5 + [False] * 5

    leaves_nothing(hangs, scenario)


def test_cancelling_a_call_leaves_nothing_behind() -> None:
    async def scenario(server: ModelServer) -> None:
        async with connect(server.endpoint(), ONCE) as client:
            calls = [asyncio.create_task(client.complete(ASK)) for _ in range(8)]
            await wait_until(lambda: client.limiter.in_flight == 5)
            for call in calls:
                call.cancel()
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in outcomes)
            assert client.limiter.in_flight == 0

    leaves_nothing(hangs, scenario)


def test_cookies_of_a_server_are_not_sent_back() -> None:
    async def scenario() -> None:
        cookie = answers(said(), Set_Cookie="track=1; Path=/")
        async with ModelServer(cookie) as server, connect(server.endpoint()) as client:
            await client.complete(ASK)
            await client.complete(ASK)
            assert "cookie" not in server.asked[1].headers

    asyncio.run(scenario())


def test_the_date_in_retry_after_is_read_against_the_clock_of_the_client() -> None:
    time = ToldTime(at=784111777.0)
    late = answers({}, 429, Retry_After="Sun, 06 Nov 1994 08:49:47 GMT")

    async def scenario() -> int:
        async with ModelServer(late, OK) as server:
            async with connect(server.endpoint(), ONCE, timing=time.timing) as client:
                with pytest.raises(EndpointError):
                    await client.complete(ASK)
            return len(server.asked)

    assert asyncio.run(scenario()) == 1
    assert time.slept == []


def test_a_denial_is_an_error_of_its_own() -> None:
    async def scenario() -> None:
        async with ModelServer(answers({}, 401)) as server:
            async with connect(server.endpoint()) as client:
                with pytest.raises(AccessDenied) as caught:
                    await client.complete(ASK)
            assert len(server.asked) == 1
            assert server.url.split("/")[2] in str(caught.value)
            assert "or omit it and set OPENAI_API_KEY" in str(caught.value)

    asyncio.run(scenario())
