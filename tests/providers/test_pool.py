"""Connections that are kept, and what servers do to them: each ends in an answer or one error."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
from cryptography import x509

from assay.providers import pool as pool_module
from assay.providers.pool import ConnectionBroken, ConnectTimeout, Origin, Pool, RawResponse
from tls_certificates import LOOPBACK, certificate

ASK = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"
BODY = b'{"a": 1}'
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n" + BODY

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_Found = TypeVar("_Found")


class Server:
    """Reads requests of the shape of `ASK` and writes what it is told, once for each."""

    def __init__(self, *answers: bytes | Serve) -> None:
        self._answers = list(answers)
        self.connections = 0
        self.open = 0
        self.asked = 0

    @asynccontextmanager
    async def running(
        self, trust: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> AsyncIterator[Origin]:
        server = await asyncio.start_server(self._serve, host, 0, ssl=trust)
        port = server.sockets[0].getsockname()[1]
        try:
            yield Origin(host, port, trust is not None)
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while await reader.readexactly(len(ASK)):
                self.asked += 1
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                if isinstance(answer, bytes):
                    writer.write(answer)
                else:
                    await answer(reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.open -= 1
            writer.close()


def told(server: Server, scenario: Callable[[Pool, Origin], Coroutine[Any, Any, _Found]]) -> _Found:
    """Run a scenario against a server, and see that no connection outlives its pool."""

    async def whole() -> _Found:
        async with server.running() as place:
            pool = Pool(asyncio.get_running_loop())
            try:
                return await scenario(pool, place)
            finally:
                await pool.close()
                assert not pool._open
                await turns_until(lambda: server.open == 0)

    return asyncio.run(whole())


async def turns_until(met: Callable[[], bool]) -> None:
    """Let the event loop run until something is so. The test hangs, and fails, if it never is."""
    async with asyncio.timeout(180):
        while not met():
            await asyncio.sleep(0.001)


async def ask(
    pool: Pool, place: Origin, *, timeout_s: float = 20.0, most: int = 1000
) -> RawResponse:
    return await pool.exchange(place, ASK, timeout_s=timeout_s, longest=lambda status: most)


def one(answer: bytes | Serve, **options: Any) -> RawResponse:
    return told(Server(answer), lambda pool, place: ask(pool, place, **options))


def closing(data: bytes) -> Serve:
    """Writes and ends the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        writer.close()

    return serve


def hanging(data: bytes) -> Serve:
    """Writes, and then says nothing more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await writer.drain()
        await reader.read()

    return serve


def forever(start: bytes, piece: bytes) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(piece)
            await writer.drain()

    return serve


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'3;note=x\r\n{"a\r\n5\r\n": 1}\r\n0\r\nX-Trailer: late\r\n\r\n'
)
SPELLINGS: dict[str, bytes | Serve] = {
    "a length": PLAIN,
    "chunks": CHUNKED,
    "until the end": closing(b"HTTP/1.1 200 OK\r\n\r\n" + BODY),
    "an old server": closing(b"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\n" + BODY),
    "a word before": b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n" + PLAIN,
    "bare line ends": PLAIN.replace(b"\r\n", b"\n"),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_answer_is_read_however_its_end_is_told(spelling: str) -> None:
    answer = one(SPELLINGS[spelling])

    assert (answer.status, answer.body, answer.cut) == (200, BODY, False)
    assert b"x-early" not in answer.headers


@pytest.mark.parametrize("whole", [PLAIN, CHUNKED])
def test_an_answer_in_single_bytes_is_the_same_answer(whole: bytes) -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for byte in whole:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    assert one(drips).body == BODY


def test_headers_are_found_whatever_their_spelling() -> None:
    spelled = PLAIN.replace(b"\r\n\r\n", b"\r\nRETRY-After:  7 \r\n\r\n")

    assert one(spelled).headers[b"retry-after"].strip() == b"7"


def test_a_connection_is_used_again() -> None:
    server = Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        for _ in range(5):
            assert (await ask(pool, place)).body == BODY

    told(server, scenario)

    assert (server.asked, server.connections) == (5, 1)


def test_requests_at_once_each_have_a_connection() -> None:
    server = Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        answers = await asyncio.gather(*(ask(pool, place) for _ in range(20)))
        assert {answer.body for answer in answers} == {BODY}

    told(server, scenario)

    assert (server.asked, server.connections) == (20, 20)


@pytest.mark.parametrize(
    "last",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n" + BODY,
        PLAIN + b"HTTP/1.1 500 Unasked\r\nContent-Length: 0\r\n\r\n",
        PLAIN + b"rubbish that is not HTTP at all\r\n\r\n",
        closing(PLAIN),
    ],
)
def test_a_connection_that_is_not_clean_is_not_used_again(last: bytes | Serve) -> None:
    server = Server(last, PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        assert (await ask(pool, place)).body == BODY
        await turns_until(lambda: not pool._open)
        assert (await ask(pool, place)).body == BODY

    told(server, scenario)

    assert server.connections == 2


def test_a_server_that_talks_out_of_turn_is_hung_up_on() -> None:
    go = asyncio.Event()

    async def scenario(pool: Pool, place: Origin) -> None:
        await ask(pool, place)
        go.set()
        await turns_until(lambda: not pool._open)
        assert (await ask(pool, place)).body == BODY

    async def talks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(PLAIN)
        await writer.drain()
        await go.wait()
        writer.write(b"HTTP/1.1 408 Too late\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()

    server = Server(talks, PLAIN)
    told(server, scenario)

    assert server.connections == 2


def test_a_connection_that_rested_too_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_IDLE_TIMEOUT_S", 0.0)
    server = Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        for _ in range(3):
            await ask(pool, place)
            await asyncio.sleep(0.001)

    told(server, scenario)

    assert server.connections == 3


def test_connections_nobody_needs_any_more_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        await asyncio.gather(*(ask(pool, place) for _ in range(8)))
        assert len(pool._open) == 8
        await asyncio.sleep(0.002)
        monkeypatch.setattr(pool_module, "_IDLE_TIMEOUT_S", 0.001)
        await ask(pool, place)
        await turns_until(lambda: len(pool._open) == 1)

    told(server, scenario)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: eight\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: ws\r\nConnection: upgrade\r\n\r\n", "not HTTP"),
        (closing(b""), "closed by the server"),
        (closing(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"), "closed by the server"),
        (closing(CHUNKED[:-5]), "closed by the server"),
        (forever(b"HTTP/1.1 200 OK\r\nX-Long: ", b"x" * 65536), "headers too large"),
        (forever(b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 5000), "headers too large"),
        (forever(CHUNKED[:-2], b"X-More: 1\r\n" * 5000), "headers too large"),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes | Serve, words: str) -> None:
    with pytest.raises(ConnectionBroken, match=f"^{words}$"):
        one(answer)


@pytest.mark.parametrize("status", [b"200 OK", b"500 No"])
def test_an_endless_body_is_cut(status: bytes) -> None:
    endless = forever(b"HTTP/1.1 " + status + b"\r\nContent-Length: 999999999\r\n\r\n", b"x" * 500)

    answer = one(endless, most=10_000)

    assert (answer.body, answer.cut) == (b"x" * 10_000, True)


def test_a_body_as_long_as_allowed_is_whole() -> None:
    assert one(PLAIN, most=8) == RawResponse(200, {b"content-length": b"8"}, BODY, cut=False)
    assert one(PLAIN, most=7) == RawResponse(200, {b"content-length": b"8"}, BODY[:7], cut=True)


def test_a_body_that_never_ends_runs_into_the_timeout() -> None:
    for said in (b"", PLAIN[:20], PLAIN[:-1]):
        with pytest.raises(TimeoutError):
            one(hanging(said), timeout_s=0.05)


@pytest.mark.parametrize("rest", [closing, hanging])
def test_an_error_status_is_an_answer_even_without_its_body(rest: Callable[[bytes], Serve]) -> None:
    head = b"HTTP/1.1 401 No\r\nX-Why: key\r\nContent-Length: 500\r\n\r\n{"

    answer = one(rest(head), timeout_s=1.0)

    assert (answer.status, answer.headers[b"x-why"], answer.body) == (401, b"key", b"")


def test_a_cancelled_request_ends_its_connection() -> None:
    server = Server(hanging(b""))

    async def scenario(pool: Pool, place: Origin) -> None:
        request = asyncio.create_task(ask(pool, place))
        await turns_until(lambda: server.asked == 1)
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        await turns_until(lambda: not pool._open)

    told(server, scenario)


def test_cancelling_what_has_its_answer_harms_nobody_else() -> None:
    server = Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        await ask(pool, place)
        (connection,) = pool._open
        answered = connection.ask(ASK, asyncio.get_running_loop().time() + 20, lambda status: 1000)
        await answered
        another = asyncio.create_task(ask(pool, place))
        await asyncio.sleep(0)
        connection.give_up(answered)
        assert (await another).body == BODY

    told(server, scenario)

    assert server.connections == 1


def test_a_place_where_nobody_listens_is_an_error() -> None:
    async def scenario() -> None:
        async with Server(PLAIN).running() as place:
            pass
        pool = Pool(asyncio.get_running_loop())
        with pytest.raises(ConnectionRefusedError):
            await ask(pool, place)
        await pool.close()

    asyncio.run(scenario())


def test_an_address_of_the_newer_kind_can_be_called() -> None:
    if not socket.has_ipv6:
        pytest.skip("this system has no IPv6")

    async def scenario() -> bytes:
        try:
            async with Server(PLAIN).running(host="::1") as place:
                pool = Pool(asyncio.get_running_loop())
                answer = await ask(pool, place)
                await pool.close()
                return answer.body
        except OSError as error:
            pytest.skip(f"no IPv6 loopback: {error}")

    assert asyncio.run(scenario()) == BODY


class Names:
    """Stands in for the name server."""

    def __init__(self, *answers: list[str] | OSError) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def getaddrinfo(self, host: str, port: int, **options: Any) -> list[Any]:
        self.asked += 1
        await asyncio.sleep(0)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (name, port)) for name in answer]


def named(
    names: Names, scenario: Callable[[Pool, Origin], Coroutine[Any, Any, None]], server: Server
) -> None:
    async def renamed(pool: Pool, place: Origin) -> None:
        loop: Any = asyncio.get_running_loop()
        loop.getaddrinfo = names.getaddrinfo
        try:
            await scenario(pool, Origin("model.test", place.port, tls=False))
        finally:
            del loop.getaddrinfo

    told(server, renamed)


def test_a_name_is_looked_up_once_for_many_connections() -> None:
    names, server = Names(["127.0.0.1"]), Server(PLAIN)

    async def scenario(pool: Pool, place: Origin) -> None:
        await asyncio.gather(*(ask(pool, place) for _ in range(10)))

    named(names, scenario, server)

    assert (names.asked, server.connections) == (1, 10)


def test_a_name_is_looked_up_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_DNS_CACHE_S", -1.0)
    monkeypatch.setattr(pool_module, "_IDLE_TIMEOUT_S", 0.0)
    names = Names(["127.0.0.1"])

    async def scenario(pool: Pool, place: Origin) -> None:
        await ask(pool, place)
        await asyncio.sleep(0.001)
        await ask(pool, place)

    named(names, scenario, Server(PLAIN))

    assert names.asked == 2


def test_an_address_that_does_not_answer_is_passed_over_for_the_next() -> None:
    async def scenario(pool: Pool, place: Origin) -> None:
        for _ in range(4):
            assert len(await asyncio.gather(ask(pool, place), ask(pool, place))) == 2

    # Nobody listens at the first: the test's server has its port at 127.0.0.1 only.
    named(Names(["127.0.0.3", "127.0.0.1"]), scenario, Server(PLAIN))


def test_connections_are_spread_over_the_addresses_of_a_name() -> None:
    async def scenario(pool: Pool, place: Origin) -> None:
        first = [(await pool._addresses(place))[0][4][0] for _ in range(4)]
        assert sorted(first) == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]

    named(Names(["127.0.0.1", "127.0.0.2"]), scenario, Server(PLAIN))


def test_a_lookup_that_failed_is_tried_again() -> None:
    names = Names(socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ["127.0.0.1"])

    async def scenario(pool: Pool, place: Origin) -> None:
        with pytest.raises(socket.gaierror):
            await ask(pool, place)
        assert (await ask(pool, place)).body == BODY

    named(names, scenario, Server(PLAIN))

    assert names.asked == 2


def test_one_caller_that_gives_up_leaves_the_lookup_to_the_others() -> None:
    async def scenario(pool: Pool, place: Origin) -> None:
        calls = [asyncio.create_task(ask(pool, place)) for _ in range(3)]
        await asyncio.sleep(0)
        calls[0].cancel()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert [isinstance(each, RawResponse) for each in outcomes[1:]] == [True, True]

    named(Names(["127.0.0.1"]), scenario, Server(PLAIN))


def asked_safely(context: ssl.SSLContext) -> list[RawResponse]:
    async def scenario() -> list[RawResponse]:
        # What a refused handshake does to this test's server is not its subject.
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        async with Server(PLAIN).running(context) as place:
            pool = Pool(asyncio.get_running_loop())
            try:
                return [await ask(pool, place) for _ in range(2)]
            finally:
                await pool.close()

    return asyncio.run(scenario())


def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    _, context = certificate(tmp_path, LOOPBACK)

    with pytest.raises(ssl.SSLCertVerificationError):
        asked_safely(context)


def test_a_certificate_of_a_trusted_authority_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = certificate(tmp_path, LOOPBACK)
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))

    assert [answer.body for answer in asked_safely(context)] == [BODY, BODY]


def test_a_trusted_certificate_for_another_name_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = certificate(tmp_path, x509.DNSName("elsewhere.test"))
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))

    with pytest.raises(ssl.SSLCertVerificationError):
        asked_safely(context)


@pytest.mark.parametrize(("connect_s", "request_s"), [(0.05, 20.0), (20.0, 0.05)])
def test_a_handshake_that_never_ends_is_told_apart_from_an_answer_that_never_comes(
    connect_s: float, request_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_CONNECT_TIMEOUT_S", connect_s)

    async def scenario(pool: Pool, place: Origin) -> BaseException:
        with pytest.raises((ConnectTimeout, TimeoutError)) as caught:
            await ask(pool, place._replace(tls=True), timeout_s=request_s)
        return caught.value

    async def says_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    error = told(Server(says_nothing), scenario)

    assert isinstance(error, ConnectTimeout) == (connect_s < request_s)
    if isinstance(error, ConnectTimeout):
        assert str(error) == "connecting timed out after 0.05 s"
