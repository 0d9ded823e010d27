"""The mock: what it says, what it rehearses, what it refuses."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import Client, ClientSettings, Reply, connect
from assay.types import Endpoint, Message
from model_server import ASK, ToldTime


def mock(model: str, time: ToldTime | None = None, **options: Any) -> Client:
    endpoint = Endpoint(provider="mock", model=model, extra_params=options)
    return connect(endpoint, timing=(time or ToldTime()).timing)


def ask(client: Client, *texts: str, seed: int | None = None) -> Reply:
    messages = [Message(role="user", content=text) for text in texts] or ASK
    return asyncio.run(client.complete(messages, seed=seed))


def test_echo_repeats_the_last_thing_the_user_said() -> None:
    assert ask(mock("echo"), "one", "two").message == Message(role="assistant", content="two")
    assert asyncio.run(mock("echo").complete([])).message.text == ""


def test_fixed_says_one_thing() -> None:
    client = mock("fixed", text="Yes.")

    assert [ask(client).message.text for _ in range(2)] == ["Yes.", "Yes."]


def test_words_are_counted_as_tokens_and_the_count_says_so() -> None:
    usage = ask(mock("fixed", text="Yes it is."), "Is it so?").call.usage

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (3, 3, None)
    assert usage.model_extra == {"counted": "words"}


def test_a_mock_can_have_a_price(tmp_path: Path) -> None:
    table = tmp_path / "prices.json"
    table.write_text('{"models": {"mock:echo": {"input": 1, "output": 1}}}')

    client = connect(Endpoint(provider="mock", model="echo"), ClientSettings(prices=table))

    usage = ask(client, "one two").call.usage
    assert usage is not None
    assert usage.cost_usd == 4 / 1e6


def test_a_script_is_followed_to_its_end() -> None:
    call = {"name": "add", "arguments": {"a": 1}}
    client = mock("script", replies=["Hi", {"content": None, "tool_calls": [call]}])

    assert ask(client).message.text == "Hi"
    reply = ask(client)
    assert [call.name for call in reply.message.tool_calls] == ["add"]
    assert reply.message.tool_calls[0].id == "call_1_0"
    assert reply.call.finish_reason == "tool_calls"
    with pytest.raises(EndpointError, match="has 2 replies, but reply 3 was requested"):
        ask(client)


def test_a_script_can_start_again() -> None:
    client = mock("script", replies=["a", "b"], loop=True)

    assert [ask(client).message.text for _ in range(5)] == ["a", "b", "a", "b", "a"]


def test_a_script_can_go_by_the_turn_so_that_many_conversations_share_it() -> None:
    client = mock("script", replies=["first", "second"], by="turn")
    later = [*ASK, Message(role="assistant", content="first"), *ASK]

    for _ in range(3):
        assert asyncio.run(client.complete(ASK)).message.text == "first"
        assert asyncio.run(client.complete(later)).message.text == "second"


def test_a_script_can_give_the_finish_reason() -> None:
    client = mock("script", replies=[{"content": "cut o", "finish_reason": "length"}])

    reply = ask(client)

    assert reply.call.finish_reason == "length"
    assert reply.message.model_extra == {}


def test_errors_of_a_script_go_the_way_of_real_ones() -> None:
    time = ToldTime()
    replies = [
        {"error": {"status": 429, "retry_after": 8}},
        {"error": {"status": 503}},
        {"error": {"kind": "timeout"}},
        {"error": {"kind": "reset"}},
        "At last.",
    ]

    reply = ask(mock("script", time, replies=replies))

    assert reply.message.text == "At last."
    assert reply.call.attempts == 5
    assert time.slept[0] >= 8
    assert time.slept[1:] == [1, 2, 4]


def test_a_rehearsed_denial_is_a_denial_each_time() -> None:
    client = mock("script", replies=[{"error": {"status": 401}}], loop=True)

    for _ in range(3):
        with pytest.raises(AccessDenied, match="HTTP 401: simulated error"):
            ask(client)


def test_latency_passes_and_is_reported() -> None:
    time = ToldTime()

    reply = ask(mock("echo", time, latency_s=0.25))

    assert time.slept == [0.25]
    assert reply.call.latency_s == pytest.approx(0.25)


def test_a_latency_over_the_timeout_is_a_timeout() -> None:
    endpoint = Endpoint(
        provider="mock", model="echo", extra_params={"latency_s": 9}, timeout_s=2, max_retries=0
    )

    with pytest.raises(EndpointError, match="the request timed out after 2 s"):
        ask(connect(endpoint, timing=ToldTime().timing))


def test_made_up_tokens_are_the_same_for_the_same_words_and_seed() -> None:
    def tokens(seed: int | None) -> tuple[Any, ...]:
        call = ask(mock("fixed", text="a b a", token_ids=True), "x y", seed=seed).call
        return call.prompt_ids, call.completion_ids, call.logprobs

    prompt, ids, logprobs = tokens(1)
    assert len(prompt) == 2
    assert ids[0] == ids[2] != ids[1]
    assert len(logprobs) == 3
    assert all(value <= 0 for value in logprobs)
    assert tokens(1) == tokens(1)
    assert tokens(1)[:2] == tokens(2)[:2]
    assert tokens(1)[2] != tokens(2)[2]
    assert ask(mock("echo")).call.completion_ids is None


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("eco", {}, "'eco' is not a mock model; choose one of echo, fixed, script"),
        ("echo", {"text": "x"}, "'text', which this model does not support"),
        ("fixed", {}, r"needs extra_params\['text'\]"),
        ("fixed", {"text": 5}, "text is not a string"),
        ("script", {}, r"needs extra_params\['replies'\]"),
        ("script", {"replies": "x"}, "replies is not a list"),
        ("script", {"replies": [5]}, r"replies\[0\]: a reply cannot be of type int"),
        ("script", {"replies": ["a", {"content": 5}]}, r"replies\[1\]: the reply is not a message"),
        ("script", {"replies": [{"finish_reason": 5}]}, "finish_reason=5 is not a string"),
        ("script", {"replies": [{"error": {}}]}, "needs a `status` from 300 to 599"),
        ("script", {"replies": [{"error": {"status": 200}}]}, "needs a `status`"),
        ("script", {"replies": [{"error": {"status": 429, "retry_after": "x"}}]}, "retry_after"),
        (
            "script",
            {"replies": [{"error": {"status": 429, "retry_after": float("nan")}}]},
            "`retry_after` is not a number of seconds",
        ),
        ("script", {"replies": [{"error": {"status": 429, "retry_after": -1}}]}, "retry_after"),
        ("script", {"replies": ["a"], "by": "day"}, "by='day' is not 'call' or 'turn'"),
        ("echo", {"latency_s": -1}, "latency_s=-1 is not a number of seconds"),
        ("echo", {"latency_s": "1"}, "latency_s='1' is not a number"),
        ("echo", {"latency_s": float("nan")}, "latency_s=nan is not a number"),
        ("echo", {"latency_s": float("inf")}, "latency_s=inf is not a number"),
    ],
)
def test_wrong_options_are_refused_before_the_first_call(
    model: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        mock(model, **options)
