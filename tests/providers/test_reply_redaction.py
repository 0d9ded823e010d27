"""Canaries: planted wherever a secret can stand, and found nowhere else."""

import asyncio
import base64
import json
import logging
import pickle
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from assay.errors import EndpointError
from assay.providers import ClientSettings, check_endpoint, connect
from assay.providers.connection import build_request_template
from assay.providers.reply_redaction import Redactor, build_endpoint_redactor
from assay.types import Boundary, Endpoint, Failure
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
)

KEY, HEADER, USER, PASSWORD, QUERY, EXTRA = (
    f"canary-{name}-7f3a" for name in ("key", "header", "user", "password", "query", "extra")
)
BASIC = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
CANARIES = (KEY, HEADER, USER, PASSWORD, QUERY, EXTRA, BASIC)


def endpoints(server: ModelServer, **fields: Any) -> list[tuple[Endpoint, list[str]]]:
    """Two, since a key and a user in the address exclude each other; and the secrets of each."""
    host = server.url.removeprefix("http://")
    common: dict[str, Any] = {
        "provider": "openai",
        "model": "m",
        "headers": {"X-Gateway-Auth": HEADER},
        "extra_params": {"gateway_token": EXTRA},
        **fields,
    }
    keyed = Endpoint(api_key=KEY, api_base=f"http://{host}?sig={QUERY}", **common)
    named = Endpoint(api_base=f"http://{USER}:{PASSWORD}@{host}?sig={QUERY}", **common)
    return [(keyed, [KEY, HEADER, QUERY, EXTRA]), (named, [USER, PASSWORD, BASIC, HEADER, QUERY])]


def _echo(secrets: list[str]) -> bytes:
    return f"bad request: {' '.join(secrets)} Authorization: Bearer {secrets[0]}".encode()


Made = Callable[[list[str]], Behaviour]
BEHAVIOURS: dict[str, Made] = {
    "echo": lambda secrets: answers(_echo(secrets), 400),
    "echo as JSON": lambda secrets: answers(
        {"error": {"message": " ".join(secrets), "code": secrets[0], "type": secrets[-1]}}, 400
    ),
    "echo in other JSON": lambda secrets: answers({"detail": [{"input": secrets}]}, 422),
    "echo instead of JSON": lambda secrets: answers(_echo(secrets)),
    "echo as an error with 200": lambda secrets: answers({"error": {"message": str(secrets)}}),
    "redirect": lambda secrets: answers(b"", 302, Location=f"http://127.0.0.1:1/?{secrets}"),
    "reset": lambda _: resets_mid_body,
    "half-closed": lambda _: half_closes,
    "hang up": lambda _: hangs_up,
    "hang": lambda _: hangs,
    "denied": lambda secrets: answers(_echo(secrets), 401),
    "rate limit": lambda secrets: answers(_echo(secrets), 429, Retry_After="9999"),
}


def texts_of(error: EndpointError) -> list[str]:
    """Everything a failure is ever shown or stored as."""
    failure = Failure.of(error, Boundary.ENDPOINT)
    return [str(error), repr(error), failure.model_dump_json(), repr(pickle.loads(_pickled(error)))]


def _pickled(error: EndpointError) -> bytes:
    return pickle.dumps(error)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
@pytest.mark.parametrize("which", [0, 1], ids=["key", "user"])
def test_no_failure_shows_a_secret(
    behaviour: str, which: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def scenario() -> None:
        server = ModelServer()
        async with server:
            timeout_s = 0.05 if behaviour == "hang" else 10
            endpoint, secrets = endpoints(server, timeout_s=timeout_s)[which]
            server.behave(BEHAVIOURS[behaviour](secrets))
            async with connect(endpoint, timing=ToldTime().timing) as client:
                with pytest.raises(EndpointError) as caught:
                    await client.complete(ASK)
                shown.extend([*texts_of(caught.value), repr(client)])
                shown.append(repr(await check_endpoint(endpoint, timeout_s=timeout_s)))
            sent = "".join(f"{asked.path}{asked.headers}{asked.body!r}" for asked in server.asked)
            unsent = (USER, PASSWORD)  # these travel packed
            assert all(secret in sent for secret in secrets if secret not in unsent)

    asyncio.run(scenario())

    shown.append(caplog.text)
    assert [canary for canary in CANARIES for text in shown if canary in text] == []


def test_no_connection_error_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> list[str]:
        async with ModelServer(OK) as server:
            dead = endpoints(server)
        shown = []
        for endpoint, _ in dead:
            async with connect(endpoint, timing=ToldTime().timing) as client:
                with pytest.raises(EndpointError) as caught:
                    await client.complete(ASK)
                shown.extend(texts_of(caught.value))
        return shown

    shown = [*asyncio.run(scenario()), caplog.text]

    assert [canary for canary in CANARIES for text in shown if canary in text] == []


def test_neither_reply_nor_cache_nor_representation_holds_a_secret(tmp_path: Path) -> None:
    async def scenario() -> list[str]:
        shown = []
        async with ModelServer(OK) as server:
            for endpoint, _ in endpoints(server):
                async with connect(endpoint, ClientSettings(cache=tmp_path)) as client:
                    reply = await client.complete(ASK)
                    shown += [repr(reply), repr(client), repr(client.__dict__)]
                    shown.append(repr(build_request_template(endpoint, "/x", timeout_s=1)))
        return shown

    shown = asyncio.run(scenario())

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    shown += [path.read_text() + str(path) for path in files]
    assert [canary for canary in CANARIES for text in shown if canary in text] == []


def test_longer_secrets_are_taken_out_before_their_parts() -> None:
    redactor = Redactor(["abcd", "abcdefgh", "x", ""])

    assert redactor.clean("abcdefgh abcd x") == "[redacted] [redacted] x"
    assert "abcd" not in repr(redactor)


@pytest.mark.parametrize(
    "text",
    [
        "Incorrect API key: sk-proj-abcdefghijkl1234",
        "Authorization: Bearer eyJhbGciOiJIUzI1NiJ9.e30",
        "authorization: basic dXNlcjpwYXNzd29yZA==",
        "hf_abcdefghijklmnop",
    ],
)
def test_what_looks_like_a_key_is_taken_out_even_if_unknown(text: str) -> None:
    cleaned = Redactor([]).clean(text)

    assert "[redacted]" in cleaned
    assert text.split()[-1] not in cleaned


def test_ordinary_words_stay() -> None:
    text = "basic authentication is required; the model gpt-4o-2024-08-06 was not found"

    assert Redactor([]).clean(text) == text


def test_an_escaped_secret_in_the_address_is_known_in_both_spellings() -> None:
    endpoint = Endpoint(provider="vllm", model="m", api_base="http://a:p%40ssword@h/v1?k=x%2Fyyyy")

    redactor = build_endpoint_redactor(endpoint, {})

    assert redactor.clean("p%40ssword p@ssword x%2Fyyyy x/yyyy") == " ".join(["[redacted]"] * 4)


def known_to(headers: dict[str, str] | None = None, **fields: Any) -> Redactor:
    endpoint = Endpoint(provider="vllm", model="m", headers=headers or {}, **fields)
    return build_endpoint_redactor(endpoint, headers or {})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Cookie", f"session={KEY}"),
        ("Cookie", f"sid={KEY}; theme=dark"),
        ("Cookie", f"theme=dark; session={KEY}"),
        ("Authorization", f'Token token="{KEY}", id=5'),
        ("Authorization", f"Digest username=me,response={KEY}"),
        ("X-Secret", f"{KEY}"),
    ],
)
def test_the_values_inside_a_header_are_known(name: str, value: str) -> None:
    redactor = known_to({name: value})

    assert redactor.clean(f"bad {KEY} of {value}") == "bad [redacted] of [redacted]"
    assert redactor.clean("no session, and no token") == "no session, and no token"


def test_a_header_is_known_with_and_without_its_padding() -> None:
    redactor = known_to({"Authorization": "Custom YWJjZGVmZ2g=="})

    assert redactor.clean("YWJjZGVmZ2g== YWJjZGVmZ2g") == "[redacted] [redacted]"
    assert redactor.clean("Custom is no scheme") == "Custom is no scheme"


@pytest.mark.parametrize(
    "extra_params",
    [
        {"provider": {"api_key": EXTRA}},
        {"provider": {"any": [{"name": EXTRA}]}},
        {"keys": [EXTRA, "x"]},
        {"keys": (5, EXTRA)},
        {"chat_template_kwargs": {"token": EXTRA}},
        {"response_format": {"list": [{"a": 1}, {"auth": EXTRA}]}},
    ],
)
def test_secrets_deep_inside_parameters_are_known(extra_params: dict[str, Any]) -> None:
    redactor = known_to(extra_params=extra_params)

    assert redactor.clean(f"unknown: {EXTRA}") == "unknown: [redacted]"


def test_numbers_among_parameters_are_known_from_six_digits() -> None:
    redactor = known_to(extra_params={"pin": 839201, "size": 4096, "flag": True, "top_k": 1234567})

    text = "pin 839201, size 4096, flag True, top_k 1234567"
    assert redactor.clean(text) == "pin [redacted], size 4096, flag True, top_k 1234567"


def test_a_secret_inside_thinking_is_known() -> None:
    redactor = known_to(thinking={"type": "enabled", "api_key": KEY})

    assert redactor.clean(f"enabled {KEY}") == "enabled [redacted]"


ODD = "can\"ary\\7f3a'ä/+&9"
SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "in JSON": lambda text: json.dumps(text),
    "in JSON that keeps letters": lambda text: json.dumps(text, ensure_ascii=False),
    "in JSON in JSON": lambda text: json.dumps(
        json.dumps({"a": text}, ensure_ascii=False), ensure_ascii=False
    ),
    "in Python": lambda text: str({"a": text}),
    "in an address": lambda text: quote(text, safe=""),
    "in a page": lambda text: escape(text),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_is_known_however_it_is_escaped(spelling: str) -> None:
    cleaned = Redactor([ODD]).clean(SPELLINGS[spelling](ODD))

    assert "[redacted]" in cleaned
    assert "7f3a" not in cleaned
    assert "can" not in cleaned


def test_a_query_is_known_as_it_is_sent() -> None:
    redactor = known_to(api_base="http://h/v1?key=can+äry99")

    assert redactor.clean("?key=can+%C3%A4ry99 can+%C3%A4ry99") == "?[redacted] [redacted]"
    assert redactor.clean("can%2B%C3%A4ry99 can äry99") == "[redacted] [redacted]"


def test_the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_taken_out() -> None:
    redactor = Redactor(["canary-7f3a", 'quoted "canary"', "cans"])

    assert redactor.clean("key can", cut=True) == "key can"
    assert redactor.clean("key cana", cut=True) == "key [redacted]"
    assert redactor.clean("key canary-7f", cut=True) == "key [redacted]"
    assert redactor.clean("canacanary-7f3", cut=True) == "cana[redacted]"
    assert redactor.clean('quoted \\"can', cut=True) == "[redacted]"
    assert redactor.clean("key canary-7\ufffd", cut=True) == "key [redacted]"
    assert redactor.clean("key canary-7f") == "key canary-7f"
    assert Redactor([]).clean("key cana", cut=True) == "key cana"


def complaint_of(body: Any, status: int, **fields: Any) -> str:
    """What a client says of a server that answers with this."""

    async def scenario() -> str:
        async with ModelServer(answers(body, status)) as server:
            endpoint = Endpoint(provider="vllm", model="m", api_base=server.url, **fields)
            async with connect(endpoint, ClientSettings(max_retries=0)) as client:
                with pytest.raises(EndpointError) as caught:
                    await client.complete(ASK)
                return caught.value.message

    return asyncio.run(scenario())


@pytest.mark.parametrize("status", [200, 400])
def test_a_body_that_ends_in_the_middle_of_a_key_shows_no_half_of_it(status: int) -> None:
    body = b" " * (16 * 1024 - 9) + KEY.encode() + b" " * 100

    assert KEY[:5] not in complaint_of(body, status, api_key=KEY)


def test_a_key_that_is_escaped_in_json_without_an_end_is_known() -> None:
    spelled = "".join(f"\\u{ord(character):04x}" for character in KEY)
    body = f'{{"detail": "{spelled} c4n4ry\\/key'.encode()

    message = complaint_of(body, 400, api_key=KEY, headers={"X-Secret": "c4n4ry/key"})

    assert message == 'HTTP 400: {"detail": "[redacted] [redacted]'


@pytest.mark.parametrize(
    "body",
    [
        {"detail": {"h": f"Bearer {ODD[:-3]}"}},
        {"error": {"message": {"h": f"Bearer {ODD[:-3]}"}}},
        {"detail": json.dumps({"h": f"Bearer {ODD[:-3]}"}, ensure_ascii=False)},
    ],
)
def test_a_key_that_must_be_escaped_is_not_shown_in_its_escaped_form(body: Any) -> None:
    assert "7f3a" not in complaint_of(body, 400, headers={"Authorization": f"Bearer {ODD[:-3]}"})
