"""Model calls through a real forward proxy: plain requests, tunnels, and what goes wrong there."""

import asyncio
import base64
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, EndpointError
from assay.providers import ClientSettings, Reply, check_endpoint, connect
from assay.providers import http as http_module
from assay.providers import proxy_session as session_module
from assay.types import Endpoint, Message
from forward_proxy import ForwardProxy
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
)
from tls_certificates import LOOPBACK, certificate

Scenario = Callable[[ForwardProxy, ModelServer], Coroutine[Any, Any, None]]
ONCE = ClientSettings(max_retries=0)


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Run a scenario with a proxy for everything and a model server behind it."""

    def run(
        scenario: Scenario, *behaviours: Behaviour, tls: bool = False, user: str = "", **of: Any
    ) -> None:
        async def whole() -> None:
            context = None
            if tls:
                trusted, context = certificate(tmp_path, LOOPBACK)
                monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
            async with (
                ModelServer(*(behaviours or (OK,)), tls=context) as server,
                ForwardProxy(**of) as proxy,
            ):
                for name in ("HTTP_PROXY", "HTTPS_PROXY"):
                    monkeypatch.setenv(name, f"http://{user}{proxy.host}")
                await scenario(proxy, server)
            for _ in range(10):
                await asyncio.sleep(0)  # the server's sockets are closed in the next runs

        asyncio.run(whole())

    return run


async def ask(endpoint: Endpoint, settings: ClientSettings = ONCE) -> Reply:
    async with connect(endpoint, settings, timing=ToldTime().timing) as client:
        return await client.complete(ASK)


async def fail(endpoint: Endpoint, settings: ClientSettings = ONCE) -> EndpointError:
    with pytest.raises(EndpointError) as caught:
        await ask(endpoint, settings)
    return caught.value


def test_a_plain_request_is_passed_on_by_the_proxy(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        base = f"{server.url}?code=a%2Fb+c"
        reply = await ask(server.endpoint(api_base=base, headers={"X-Own": "ä"}))

        assert reply.message.text == "Hello."
        assert proxy.asked == [f"POST {server.url}/chat/completions?code=a%2Fb+c"]
        (asked,) = server.asked
        assert asked.path == "/v1/chat/completions?code=a%2Fb+c"
        assert asked.json["messages"][0]["content"] == "Say hello."
        sent = {name: asked.headers[name] for name in ("user-agent", "accept-encoding", "accept")}
        assert sent == {
            "user-agent": "assay",
            "accept-encoding": "identity",
            "accept": "application/json",
        }
        assert asked.headers["authorization"] == "Bearer k-1234"

    through(scenario)


def test_a_large_request_is_sent_whole(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        text = "word " * 500_000
        async with connect(server.endpoint()) as client:
            await client.complete([Message(role="user", content=text)])

        assert server.asked[0].json["messages"][0]["content"] == text

    through(scenario, tls=True)


def test_an_encrypted_request_goes_through_a_tunnel(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with connect(server.endpoint()) as client:
            for _ in range(3):
                assert (await client.complete(ASK)).message.text == "Hello."

        host = server.url.removeprefix("https://").removesuffix("/v1")
        assert proxy.asked == [f"CONNECT {host}"]
        assert (len(server.asked), server.connections) == (3, 1)
        assert b"k-1234" not in proxy.tunnelled
        assert "k-1234" not in "".join(proxy.heads)

    through(scenario, tls=True)


def test_a_certificate_is_checked_inside_the_tunnel(
    through: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        monkeypatch.delenv("SSL_CERT_FILE")

        error = await fail(server.endpoint())

        assert "certificate is not valid" in error.message
        assert (error.retryable, server.asked) == (False, [])

    through(scenario, tls=True)


@pytest.mark.parametrize("tls", [False, True])
def test_what_no_proxy_names_is_asked_directly(
    tls: bool, through: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        monkeypatch.setenv("NO_PROXY", "elsewhere,127.0.0.0/8")

        await ask(server.endpoint())

        assert (proxy.asked, len(server.asked)) == ([], 1)

    through(scenario, tls=tls)


CREDENTIALS = "me:p%40ss-canary@"
BASIC = "Basic " + base64.b64encode(b"me:p@ss-canary").decode()


@pytest.mark.parametrize("tls", [False, True])
def test_credentials_of_the_proxy_are_sent_to_it_alone(
    tls: bool, through: Callable[..., None]
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with connect(server.endpoint()) as client:
            await client.complete(ASK)
            await client.complete(ASK)

        assert all(BASIC in head for head in proxy.heads)
        assert "proxy-authorization" not in server.asked[0].headers
        assert len(proxy.heads) == (1 if tls else 2)

    through(scenario, tls=tls, user=CREDENTIALS, demands=BASIC)


@pytest.mark.parametrize("tls", [False, True])
def test_wrong_credentials_of_the_proxy_are_told_and_not_shown(
    tls: bool, through: Callable[..., None]
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint(), ClientSettings(max_retries=3))

        assert (error.status, error.retryable, len(proxy.asked)) == (407, False, 1)
        assert "HTTP_PROXY" in (error.hint or "")
        assert not isinstance(error, AccessDenied)
        assert "canary" not in f"{error}{error!r}"

    through(scenario, tls=tls, user=CREDENTIALS, demands="Basic another")


def test_credentials_of_the_proxy_that_a_server_repeats_are_not_shown(
    through: Callable[..., None],
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint())

        assert error.message == "HTTP 400: [redacted] [redacted]"

    body = f"p@ss-canary {BASIC.split()[1]}".encode()
    through(scenario, answers(body, 400), user=CREDENTIALS)


@pytest.mark.parametrize(
    ("status", "retryable"), [(403, False), (500, True), (502, True), (503, True), (504, True)]
)
def test_a_tunnel_that_is_refused_names_the_proxy(
    status: int, retryable: bool, through: Callable[..., None]
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint(), ClientSettings(max_retries=1))

        said = f"the proxy {proxy.host} refused the connection: HTTP {status}"
        assert error.message.startswith(said)
        assert (error.retryable, len(proxy.asked)) == (retryable, 1 + retryable)

    through(scenario, tls=True, refuses=status)


@pytest.mark.parametrize("tls", [False, True])
def test_a_proxy_that_is_not_there_is_named(
    tls: bool, through: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with ForwardProxy() as gone:
            monkeypatch.setenv("HTTP_PROXY", gone.url)
            monkeypatch.setenv("HTTPS_PROXY", gone.url)

        error = await fail(server.endpoint())

        assert f"the proxy {gone.host} cannot be reached" in error.message
        assert "NO_PROXY" in (error.hint or "")
        assert error.retryable

    through(scenario, tls=tls)


@pytest.mark.parametrize("behaviour", [resets_mid_body, half_closes, hangs_up])
def test_a_connection_that_breaks_behind_the_proxy_is_worth_another_attempt(
    behaviour: Behaviour, through: Callable[..., None]
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        reply = await ask(server.endpoint(), ClientSettings(max_retries=1))

        assert (reply.message.text, reply.call.attempts) == ("Hello.", 2)

    through(scenario, behaviour, OK, tls=True)


def test_rate_limits_and_refused_keys_are_those_of_the_server(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint())
        assert (error.status, error.retryable) == (429, True)

        server.behave(answers({"error": {"message": "who?"}}, 401))
        assert isinstance(await fail(server.endpoint()), AccessDenied)

        server.behave(answers(b"", 302, Location="http://127.0.0.1:9/"))
        assert "not followed" in (await fail(server.endpoint())).message

    through(scenario, answers({"error": {"message": "slow down"}}, 429), tls=True)


@pytest.mark.parametrize("tls", [False, True])
def test_a_server_that_never_answers_runs_into_the_timeout(
    tls: bool, through: Callable[..., None]
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint(timeout_s=0.1))

        assert error.message.startswith("the request timed out after 0.1 s")

    through(scenario, hangs, tls=tls)


def test_a_proxy_that_never_answers_is_told_apart(
    through: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_PROXY_CONNECT_TIMEOUT_S", 0.05)

    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint())

        assert error.message.startswith("connecting timed out after 0.05 s")

    through(scenario, tls=True, silent=True)


def test_an_endless_answer_is_given_up(
    through: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_module, "MAX_RESPONSE_BYTES", 100_000)

    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        error = await fail(server.endpoint())

        assert "the answer is longer than" in error.message

    through(scenario, streams_forever, tls=True)


def test_the_variables_are_read_when_a_client_is_made(
    through: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with connect(server.endpoint()) as client:
            monkeypatch.delenv("HTTP_PROXY")
            await client.complete(ASK)
        await ask(server.endpoint())

        assert (len(proxy.asked), len(server.asked)) == (1, 2)

    through(scenario)


def test_many_calls_at_once_share_the_proxy(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with connect(server.endpoint(), ClientSettings(concurrency=20)) as client:
            replies = await asyncio.gather(*(client.complete(ASK) for _ in range(60)))

        assert {reply.message.text for reply in replies} == {"Hello."}
        assert 1 <= len(proxy.asked) <= 20

    through(scenario, answers(said(), delay_s=0.001), tls=True)


def test_cancelling_a_call_harms_nobody_else(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        async with connect(server.endpoint()) as client:
            call = asyncio.create_task(client.complete(ASK))
            while not server.asked:
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            server.behave(OK)
            assert (await client.complete(ASK)).message.text == "Hello."

    through(scenario, hangs, tls=True)


def test_a_check_tells_the_proxy_it_went_through(through: Callable[..., None]) -> None:
    async def scenario(proxy: ForwardProxy, server: ModelServer) -> None:
        found = await check_endpoint(server.endpoint())

        assert (found.verdict, found.proxy) == ("answers", proxy.host)
        assert "canary" not in repr(found)

    through(scenario, answers({"data": [{"id": "m"}]}), user=CREDENTIALS)
