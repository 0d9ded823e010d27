"""HTTP services as agents: what they are sent, where the answer is found, what is a failure."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from assay.agents import HttpAgent, RunContext
from assay.agents.agent import AgentFault
from assay.errors import ConfigError
from assay.types import Sample, Trajectory

ASKED = Sample(id="s1", prompt="2 + 2?", input={"question": "2 + 2?", "level": {"name": "easy"}})
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serve(handler: Handler) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def ask(handler: Handler, **settings: Any) -> Trajectory:
    async def run() -> Trajectory:
        async with serve(handler) as port:
            agent = HttpAgent(f"http://127.0.0.1:{port}/ask?secret=query-secret-1", **settings)
            try:
                context = RunContext(messages=ASKED.messages, sampling_seed=5)
                return await agent.run(ASKED, context)
            finally:
                await agent.close()

    return asyncio.run(run())


def reply_text(text: str, content_type: str, status: int = 200) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=content_type, status=status)

    return handle


def reply(body: Any, status: int = 200) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    return handle


def test_a_service_is_sent_prompt_and_messages_unless_it_has_a_template() -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.query_string, await request.json()))
        return web.json_response({"answer": "four"})

    ask(handle)
    template = {
        "question": "{prompt}",
        "text": "Level {input.level.name}, seed {seed}: {prompt}",
        "chat": "{messages}",
        "seed": "{seed}",
        "stream": False,
        "nested": [{"id": "{id}"}],
    }
    trajectory = ask(handle, request=template)

    chat = [{"role": "user", "content": "2 + 2?"}]
    assert seen[0] == ("secret=query-secret-1", {"messages": chat, "prompt": "2 + 2?"})
    assert seen[1][1] == {
        "question": "2 + 2?",
        "text": "Level easy, seed 5: 2 + 2?",
        "chat": chat,
        "seed": 5,
        "stream": False,
        "nested": [{"id": "s1"}],
    }
    assert trajectory.messages[-1].text == "four"
    assert trajectory.duration is not None


@pytest.mark.parametrize(
    ("body", "answer", "text"),
    [
        ({"data": {"parts": [{"text": "four"}]}}, "data.parts[0].text", "four"),
        ({"data": {"parts": [{"text": "four"}]}}, "$.data.parts[0].text", "four"),
        ([["four"]], "[0][0]", "four"),
        ({"value": 4}, "value", "4"),
        ({"city": "Lima"}, "$", '{"city":"Lima"}'),
        ({"messages": [{"role": "assistant", "content": "four"}]}, None, "four"),
        ({"out": {"role": "assistant", "content": "four"}}, "out", "four"),
    ],
)
def test_the_answer_is_found_by_its_path(body: Any, answer: str | None, text: str) -> None:
    assert ask(reply(body), answer=answer).messages[-1].text == text


def test_a_response_that_is_text_is_the_answer() -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="four")

    assert ask(handle).messages[-1].text == "four"


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b'\xef\xbb\xbf{"answer": "Caf\xc3\xa9"}', "application/json"),
        (b"Caf\xe9", "text/plain; charset=iso-8859-1"),
        ("Caf\u00e9".encode(), "text/plain; charset=of-nobody"),
        ("Caf\u00e9".encode(), "text/plain; charset=punycode"),
    ],
)
def test_the_encoding_of_a_response_is_followed(body: bytes, content_type: str) -> None:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": content_type})

    assert ask(handle).messages[-1].text == "Caf\u00e9"


def test_a_session_that_a_service_keeps_by_a_cookie_ends_with_the_sample() -> None:
    found: list[dict[str, str]] = []

    async def handle(request: web.Request) -> web.Response:
        found.append(dict(request.cookies))
        response = web.Response(text="four")
        response.set_cookie("session", "s1")
        return response

    async def run() -> None:
        async with serve(handle) as port:
            # Cookies are kept for hosts with a name only.
            agent = HttpAgent(f"http://localhost:{port}/ask")
            try:
                for _ in range(2):
                    await agent.run(ASKED, RunContext(messages=ASKED.messages, sampling_seed=5))
            finally:
                await agent.close()

    asyncio.run(run())

    assert found == [{}, {}]


@pytest.mark.parametrize(
    ("handler", "settings", "message"),
    [
        (reply({"error": "busy"}, 503), {}, r"HTTP 503: .*busy"),
        (reply({"data": {}}), {"answer": "data.text"}, r"no 'text' of the answer path"),
        (reply([1]), {"answer": "[3]"}, r"no 3 of the answer path"),
        (reply({"data": {"text": "4"}}), {}, r"no known format; its fields are data\n.*#answer=\$"),
        (reply_text("<html>Log in</html>", "text/html"), {}, "a web page, not an answer: <html>"),
        (reply_text("", "text/plain"), {}, "the response is empty"),
        (reply_text('{"answer": "4', "application/json"), {}, 'the response is not JSON: {"answer'),
        (reply_text("", "text/plain", 302), {}, "the service redirects, which is not followed"),
        (reply({}), {"request": {"q": "{input.topic}"}}, r"no field for \{input.topic\}"),
        (reply({}), {"request": {"q": "Q: {question}"}}, r"write \{input.question\}"),
    ],
)
def test_a_failure_says_what_was_missing(
    handler: Handler, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(AgentFault, match=message):
        ask(handler, **settings)


def test_a_redirect_is_not_followed_and_secrets_are_not_quoted() -> None:
    paths: list[str] = []

    async def handle(request: web.Request) -> web.Response:
        paths.append(request.path)
        return web.Response(status=307, headers={"Location": "/other"}, text="query-secret-1")

    with pytest.raises(AgentFault, match="HTTP 307") as caught:
        ask(handle)

    assert paths == ["/ask"]
    assert "query-secret-1" not in str(caught.value)


def test_a_response_without_end_is_cut_off() -> None:
    async def handle(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            for _ in range(40):
                await response.write(b"x" * 1_000_000)
        except ConnectionError:
            pass
        return response

    with pytest.raises(AgentFault, match="more than 16,777,216 bytes"):
        ask(handle)


def test_the_key_comes_from_a_variable_and_goes_over_loopback_or_https_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str | None] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization"))
        return web.json_response("four")

    monkeypatch.setenv("SERVICE_KEY", "key-0123456789")
    ask(handle, key_env="SERVICE_KEY")

    assert seen == ["Bearer key-0123456789"]
    with pytest.raises(ConfigError, match="over plain http"):
        HttpAgent("http://example.com/ask", key_env="SERVICE_KEY")
    with pytest.raises(ConfigError, match="NO_SUCH_KEY is not set"):
        HttpAgent("https://example.com/ask", key_env="NO_SUCH_KEY")


def test_a_service_that_does_not_run_is_a_failure_of_the_agent() -> None:
    async def run() -> None:
        agent = HttpAgent("http://127.0.0.1:1/ask")
        try:
            await agent.run(ASKED, RunContext(messages=ASKED.messages))
        finally:
            await agent.close()

    with pytest.raises(AgentFault, match="the service cannot be called"):
        asyncio.run(run())


def test_the_identity_has_no_secret_and_differs_by_template() -> None:
    one = HttpAgent("http://127.0.0.1/ask?k=abcdefghij", headers={"X-Key": "sekrit-value-1"})
    other = HttpAgent("http://127.0.0.1/ask", request={"q": "{prompt}"})

    assert one.name == other.name == "http://127.0.0.1/ask"
    assert one.identity != other.identity
    assert "sekrit" not in one.identity
