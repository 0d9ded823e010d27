"""`normalize_request`: what two runs of the same agent may differ in."""

import json
from typing import Any

import pytest

from assay.gateway.request_normalization import (
    RequestDigester,
    digest_request,
    normalize_request,
)
from assay.gateway.request_parts import PartPool


def ask(text: str, **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (
            "session 0b0e7f5c-1111-4222-8333-0123456789ab",
            "session 99999999-1111-4222-8333-0123456789AB",
        ),
        (
            "msg_8d95eb44-e8cf-516e-951c-a81722b1134d",
            "msg_0bce4a7c-ef67-5a30-ba8e-c84e80134841",
        ),
        (
            "/tmp/assay-a1/home/.claude/projects/-tmp-assay-a1-workspace/memory/",
            "/tmp/assay-b_/home/.claude/projects/-tmp-assay-b--workspace/memory/",
        ),
        (
            "/scratch/me/t-1/assay-a1b2c3d4/home/p/-scratch-me-t-1-assay-a1b2c3d4-workspace/m/",
            "/tmp/assay-z__9y8x7/home/p/-tmp-assay-z--9y8x7-workspace/m/",
        ),
        ("agentId: a10e45aef7ec3ac5f", "agentId: a204925b1acb814a6"),
        ("Chunk ID: bca393\nduration_ms: 76", "Chunk ID: 192020\nduration_ms: 268"),
        ("Today is 2026-11-16.", "Today is 2027-01-02."),
        ("at 2026-11-16T08:09:10.123Z", "at 2026-12-24 18:00:00+01:00"),
        ("Today's date: Wed Nov 18 2026", "Today's date: Thu Jan  1 2027"),
        ("-rw-r--r-- 1 me me 12 Nov 18 00:31 a.py", "-rw-r--r-- 1 me me 12 Dec  1 23:59 a.py"),
        ("1 passed in 0.03s", "1 passed in 1.52s"),
        ("cwd: /tmp/assay-x1/work\nfile", "cwd: /tmp/assay-y2_z/work\nfile"),
        ("/private/var/folders/a1/b2_c/T/assay-1/x", "/var/folders/zz/yy/T/other/x"),
        ("http://127.0.0.1:4000/s/abc-1/v1", "http://127.0.0.1:5999/s/xyz/v1"),
        ("key sk-abcdefghijklmnop1234567890", "key sk-0987654321ponmlkjihgfedcba"),
    ],
)
@pytest.mark.parametrize("before", ["", "line\n", "tab\t", '"'])
def test_values_of_one_run_are_the_same_in_every_other(
    first: str, second: str, before: str
) -> None:
    one, other = (normalize_request(ask(f"{before}{text}")) for text in (first, second))

    assert one == other


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Be brief.", "Be long."),
        ("version 1.2.3", "version 1.2.4"),
        ("/tmp/assay-x1/work/a.py", "/tmp/assay-x1/work/b.py"),
        ("/me/assay-x1b2c3d4/a.py", "/me/assay-x1b2c3d4/b.py"),
        ("17 passed", "18 passed"),
        ("http://127.0.0.1:4000/v1", "http://example.org/v1"),
        ("order 2026-11", "order 2026-12"),
        ("number 1234567890123456", "number 1234567890123457"),
        ("commit bca3930", "commit bca3931"),
    ],
)
def test_everything_else_is_a_difference(first: str, second: str) -> None:
    assert normalize_request(ask(first)) != normalize_request(ask(second))


def test_the_order_of_keys_and_the_kind_of_transport_do_not_matter() -> None:
    body = ask("hi", temperature=0.5, stream=True, metadata={"user_id": "a"}, prompt_cache_key="1")
    other = dict(reversed(ask("hi", temperature=0.5, stream=False, user="b").items()))

    assert normalize_request(body) == normalize_request(other)


def test_settings_and_tools_matter() -> None:
    plain = normalize_request(ask("hi"))

    assert normalize_request(ask("hi", temperature=0.5)) != plain
    assert normalize_request(ask("hi", tools=[{"name": "t"}])) != plain


def test_a_normalized_request_is_json_and_its_digest_depends_on_the_api() -> None:
    normalized = normalize_request(ask('a "quoted" \\ /tmp/x"y'))

    assert json.loads(normalized)["messages"][0]["content"] == 'a "quoted" \\ <tmp>"y'
    assert digest_request("openai_chat", normalized) != digest_request("anthropic", normalized)


def build_key(body: dict[str, Any]) -> bytes:
    parts = PartPool(lambda data: data).split(body, "messages")
    return RequestDigester().digest(parts).build_key("openai_chat")


def test_requests_have_the_same_key_exactly_if_their_normalized_forms_are_equal() -> None:
    bodies = [
        ask("hi"),
        ask("in /tmp/a"),
        ask("in /tmp/b"),
        ask("hi", tools=[{"name": "t"}]),
        ask("hi", tools=[]),
        ask("hi", user="u1"),
        {"model": "m", "messages": "hi"},
        {"model": "m", "messages": []},
        {"model": "m"},
        {"messages": [{"role": "user", "content": "hi"}, {"role": "user", "content": "hi"}]},
    ]
    pairs = [(one, other) for one in bodies for other in bodies]

    for one, other in pairs:
        is_same = normalize_request(one) == normalize_request(other)
        assert (build_key(one) == build_key(other)) == is_same
