"""One attempt against a real server that misbehaves, and the session that all share."""

import asyncio
import gc
import gzip
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from aiohttp import ClientConnectorCertificateError
from aiohttp.client_reqrep import ConnectionKey

from assay.endpoints import ClientSettings, connect
from assay.endpoints import http as http_module
from assay.endpoints.connection import target_for
from assay.endpoints.faults import Fault, Kind
from assay.endpoints.http import Line
from assay.errors import AccessDenied, ConfigError, EndpointError
from endpoints.model_server import (
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
)

ONCE = ClientSettings(max_retries=0, concurrency=5)


def failing(behaviour: Behaviour, timeout_s: float = 5.0, **fields: Any) -> Fault:
    """What one attempt fails of."""

    async def scenario() -> Fault:
        async with ModelServer(behaviour) as server:
            endpoint = server.endpoint(**fields)
            line = Line(target_for(endpoint, "/chat/completions", timeout_s=timeout_s))
            try:
                with pytest.raises(Fault) as caught:
                    await line.post(b"{}")
            finally:
                await line.close()
            return caught.value

    return asyncio.run(scenario())


@pytest.mark.parametrize("behaviour", [resets_mid_body, half_closes, hangs_up])
def test_a_connection_that_breaks_is_worth_another_attempt(behaviour: Behaviour) -> None:
    fault = failing(behaviour)

    assert fault.kind is Kind.UNREACHABLE
    assert fault.message.startswith("the connection ")


def test_nobody_listening_is_said_so() -> None:
    async def scenario() -> Fault:
        async with ModelServer(OK) as server:
            endpoint = server.endpoint()
        line = Line(target_for(endpoint, "/x", timeout_s=5))
        with pytest.raises(Fault) as caught:
            await line.post(b"{}")
        await line.close()
        return caught.value

    fault = asyncio.run(scenario())

    assert fault.kind is Kind.UNREACHABLE
    assert "the connection failed" in fault.message


def test_a_server_that_never_answers_runs_into_the_timeout() -> None:
    fault = failing(hangs, timeout_s=0.05)

    assert (fault.kind, fault.message) == (Kind.TIMEOUT, "no answer within 0.05 s")


@pytest.mark.parametrize(
    "body",
    [b"", b"not json", b'{"choices": [', b"\xff\xfe", b"[" * 100_000, b'"\\ud83d' + b"[" * 100_000],
)
def test_an_answer_that_is_not_json_is_no_crash(body: bytes) -> None:
    fault = failing(answers(body))

    assert fault.kind is Kind.GARBLED
    assert fault.message.startswith("the answer is not JSON: ")
    assert len(fault.message) < 400


def test_an_html_page_is_quoted_without_its_markup() -> None:
    page = b"<html><script>steal()</script><h1>502 Bad\x1b[31m Gateway</h1>\n<p>nginx</p></html>"

    fault = failing(answers(page, 502))

    assert (fault.kind, fault.status) == (Kind.OVERLOADED, 502)
    assert fault.message == "HTTP 502: 502 Bad [31m Gateway nginx"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"error": {"message": "no such model", "type": "invalid", "code": 7}}, "invalid: 7: no"),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}, "overloaded"),
        ({"error": "plain words"}, "plain words"),
        ({"message": "at the top"}, "at the top"),
        ({"detail": [{"msg": "missing"}]}, '{"detail":[{"msg":"missing"}]}'),
        ([1, 2], "[1,2]"),
        (b"", "(nothing)"),
    ],
)
def test_an_error_body_is_quoted_in_its_own_words(body: Any, words: str) -> None:
    assert failing(answers(body, 400)).message.startswith(f"HTTP 400: {words}")


def test_a_long_error_body_is_cut_and_says_so() -> None:
    fault = failing(answers(b"word " * 1_000_000, 500))

    assert len(fault.message) < 330
    assert fault.message.endswith("…")


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "LARGEST_ANSWER", 1_000_000)

    assert failing(streams_forever).message == "the answer is longer than 1000000 bytes"


def test_a_packed_answer_is_measured_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_module, "LARGEST_ANSWER", 1_000_000)
    bomb = gzip.compress(b" " * 20_000_000)

    fault = failing(answers(bomb, Content_Encoding="gzip"))

    assert fault.message == "the answer is longer than 1000000 bytes"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_is_not_followed(status: int) -> None:
    async def scenario() -> None:
        async with ModelServer(OK) as elsewhere:
            moved = answers(b"", status, Location=f"{elsewhere.url}/chat/completions")
            async with ModelServer(moved) as server, connect(server.endpoint()) as client:
                with pytest.raises(EndpointError, match="another address, which is not followed"):
                    await client.complete(ASK)
                assert len(server.asked) == 1
            assert elsewhere.asked == []

    asyncio.run(scenario())


def test_a_success_without_an_answer_is_garbled() -> None:
    assert failing(answers(b"", 204)).kind is Kind.GARBLED


def test_an_empty_account_is_not_waited_for() -> None:
    body = {"error": {"type": "insufficient_quota", "message": "You exceeded your quota"}}

    fault = failing(answers(body, 429))

    assert fault.permanent
    assert fault.hint == "the account has no credit left"


@pytest.mark.parametrize("status", [401, 403])
def test_a_denial_names_the_variable_to_set(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    fault = failing(answers({"error": {"message": "bad key"}}, status), api_key="")

    assert fault.kind is Kind.DENIED
    assert fault.hint is not None
    assert fault.hint.startswith("OPENAI_API_KEY is not set: set it")


def test_a_denial_whose_words_are_cut_off_is_still_a_denial() -> None:
    async def cut_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 401 No\r\nContent-Length: 500\r\n\r\n{")
        await writer.drain()
        writer.close()

    fault = failing(cut_off)

    assert (fault.kind, fault.message) == (Kind.DENIED, "HTTP 401: (nothing)")


def test_half_an_emoji_does_not_spoil_an_answer() -> None:
    async def scenario() -> str:
        body = b'{"choices": [{"message": {"content": "Hi \\ud83d"}}]}'
        async with ModelServer(answers(body)) as server, connect(server.endpoint()) as client:
            return (await client.complete(ASK)).message.text

    assert asyncio.run(scenario()) == "Hi \ufffd"


def test_a_wrong_certificate_is_not_tried_again() -> None:
    key = ConnectionKey("h", 443, True, True, None, None, None)
    wrong = ClientConnectorCertificateError(key, ssl.SSLCertVerificationError("self-signed"))

    fault = http_module.connection_fault(wrong)

    assert fault.permanent
    assert "certificate is not valid" in fault.message


def test_clients_of_one_event_loop_share_a_session_until_the_last_is_closed() -> None:
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
            await asyncio.sleep(0.01)
            assert server.open == 0
            assert asyncio.get_running_loop() not in http_module._SHARED

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
            await http_module._SHARED[asyncio.get_running_loop()].session.close()
            return client

    client = asyncio.run(first())

    with pytest.raises(ConfigError, match="belongs to the event loop"):
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
    """Run a scenario and see that no task, connection or session outlives it."""

    async def whole() -> None:
        before = asyncio.all_tasks()
        async with ModelServer(behaviour) as server:
            await scenario(server)
            for _ in range(40):
                if not server.open:
                    break
                await asyncio.sleep(0.005)
            assert server.open == 0
        await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == before
        assert asyncio.get_running_loop() not in http_module._SHARED

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
            await asyncio.sleep(0.05)
            assert client.limiter.in_flight == 5
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
            assert "leave it out and set OPENAI_API_KEY" in str(caught.value)

    asyncio.run(scenario())
