"""Recorded requests: written as differences, read back whole, without secrets."""

import json
from typing import Any

import pytest
from pydantic_core import to_json

from assay.errors import WireError
from assay.gateway import expand_request, request_parts
from assay.gateway.request_parts import PartPool
from assay.types import ModelCall, Trajectory
from recorded_calls import Recording, agent, user


def test_each_request_is_read_back_as_it_was_sent() -> None:
    recording = Recording()
    tools = [{"type": "function", "function": {"name": "f"}}]
    sent: list[dict[str, Any]] = [
        {"messages": [user("a")], "tools": tools},
        {"messages": [user("a"), agent("b"), user("c")], "tools": tools, "temperature": 0.5},
        {"messages": [user("x")]},
        {"messages": [user("a"), agent("b"), user("c"), agent("d"), user("é")], "tools": tools},
    ]
    for body, answer in zip(sent, "bdyz", strict=True):
        recording.ask(body["messages"], answer, **{k: body[k] for k in body if k != "messages"})

    written = Trajectory.from_json(recording.session.build_trajectory().to_json())

    for index, body in enumerate(sent):
        assert expand_request(written.calls, index) == {"model": "m", **body}


def test_a_long_conversation_is_recorded_once() -> None:
    recording = Recording()
    messages = [user("question " * 100)]
    for turn in range(50):
        recording.ask(list(messages), f"answer {turn} " * 100)
        messages += [agent(f"answer {turn} " * 100), user(f"question {turn} " * 100)]

    written = recording.session.build_trajectory().to_json()

    # The conversation itself, its requests and its answers: not 50 times its length.
    assert len(written) < 4 * len(json.dumps(messages))


def test_a_call_without_a_request_is_refused() -> None:
    with pytest.raises(WireError, match="the call has no recorded request"):
        expand_request([ModelCall()], 0)


def test_a_damaged_reference_is_refused() -> None:
    loop = {"request": {"like": 0, "set": {}}, "list_field": "messages"}

    with pytest.raises(WireError, match="the call has no recorded request"):
        expand_request([ModelCall(wire=loop)], 0)


SECRET = b"key-0123456789"


def hide(data: bytes) -> bytes:
    return data.replace(SECRET, b"[redacted]")


@pytest.mark.parametrize("text", ['plain, "quoted" \\ é \u2028 \x00', SECRET.decode()])
@pytest.mark.parametrize(
    "changes",
    [
        {"model": "other"},
        {"model": "other", "temperature": 0.5, "stream": False},
        {"messages": [{"role": "user", "content": "another"}]},
        {"messages": "one text"},
        {"messages": None},
        {},
    ],
)
def test_a_changed_request_is_the_same_json_as_written_anew(
    text: str, changes: dict[str, Any]
) -> None:
    body = {
        "model": "m",
        "messages": [user(text), agent("b"), {"role": "user", "content": 1e300}],
        'a "name"': {"x": [1, True, None, {"y": text}]},
        "stream": True,
        "none": None,
    }
    parts = PartPool(hide).split(body, "messages")
    changed = {**body, **changes}

    assert parts.encode_changed(body, changed) == to_json(changed)


def test_the_conversation_of_a_changed_request_is_not_encoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoded = 0

    def count(value: Any) -> bytes:
        nonlocal encoded
        written = to_json(value)
        encoded += len(written)
        return written

    body = {"model": "m", "messages": [user("long " * 1000)], "tools": [{"name": "f" * 1000}]}
    parts = PartPool(hide).split(body, "messages")
    changed = {**body, "model": "other"}
    monkeypatch.setattr(request_parts, "to_json", count)

    assert json.loads(parts.encode_changed(body, changed)) == changed
    assert encoded < 100


def test_only_the_new_part_of_a_conversation_is_searched_for_secrets() -> None:
    searched = 0

    def search(data: bytes) -> bytes:
        nonlocal searched
        searched += len(data)
        return hide(data)

    pool, messages = PartPool(search), [user("a system prompt " * 100)]
    for turn in range(50):
        messages = [*messages, agent(f"answer {turn} " * 20), user(f"question {turn} " * 20)]
        pool.split({"model": "m", "messages": messages, "tools": [{"name": "f"}]}, "messages")

    assert searched < len(to_json(messages)) + 100


def test_a_secret_is_removed_from_every_request_that_repeats_it() -> None:
    pool = PartPool(hide)
    bodies: list[dict[str, Any]] = [
        {"model": "m", "messages": [user("a"), user(SECRET.decode())]},
        {"model": "m", "messages": [user("a"), user(SECRET.decode()), user("b")]},
        {"model": SECRET.decode(), "messages": [user("a"), user("[redacted]"), user("b")]},
        {"model": "m", "messages": SECRET.decode()},
        {"model": "m", "messages": [user("other"), user("[redacted]"), user("b")]},
    ]

    parts = [pool.split(body, "messages") for body in bodies]

    assert [each.to_body() for each in parts] == [
        {"model": "m", "messages": [user("a"), user("[redacted]")]},
        {"model": "m", "messages": [user("a"), user("[redacted]"), user("b")]},
        {"model": "[redacted]", "messages": [user("a"), user("[redacted]"), user("b")]},
        {"model": "m", "messages": "[redacted]"},
        {"model": "m", "messages": [user("other"), user("[redacted]"), user("b")]},
    ]
    assert [each.is_complete for each in parts] == [False, False, False, False, True]
    assert parts[1].items is not None
    assert parts[2].items is not None
    assert all(one is other for one, other in zip(parts[1].items, parts[2].items, strict=True))
