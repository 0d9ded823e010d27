"""What is stored of sessions and messages besides their texts."""

from pathlib import Path
from typing import Any

import pytest

from assay.sessions import read_opencode
from assay.sessions.opencode.stored_info import (
    build_session_input,
    drop_headers,
    drop_share_secret,
    format_stored_error,
    read_system_prompt,
    read_usage,
    split_reverted,
)
from opencode_archives import RECORDED, VERSIONS, agent, session, text, user, write_export


def test_the_headers_of_a_failed_answer_are_left_out() -> None:
    error = {"name": "APIError", "data": {"message": "m", "responseHeaders": {"set-cookie": "s"}}}

    assert drop_headers(error) == {"name": "APIError", "data": {"message": "m"}}


@pytest.mark.parametrize("odd", ["text", None, {"name": "E"}, {"data": 3}])
def test_an_error_of_another_shape_is_kept(odd: Any) -> None:
    assert drop_headers(odd) == odd


def test_an_error_is_told_in_one_line() -> None:
    assert format_stored_error({"name": "E", "data": {"message": "m"}}) == "E: m"
    assert format_stored_error({"name": "E"}) == "E"
    assert format_stored_error("text") == "text"
    assert format_stored_error(None) is None


def test_the_secret_of_a_share_is_left_out() -> None:
    info = {"id": "s", "share": {"url": "u", "secret": "x"}}

    assert drop_share_secret(info) == {"id": "s", "share": {"url": "u"}}


def test_what_a_session_is_has_no_unknowns() -> None:
    assert build_session_input({"title": "t", "time": {"created": 0}}) == {
        "title": "t",
        "created": "1970-01-01T00:00:00.000Z",
    }


def test_a_system_prompt_of_pieces_is_one_text() -> None:
    assert read_system_prompt({"system": ["a", "", 3, "b"]}) == "a\n\nb"
    assert read_system_prompt({}) == ""


MESSAGES = (user(text("a")), agent(text("b"), text("c")), user(text("d")))


def test_everything_from_the_reverted_message_on_is_undone() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_1"})

    kept, reverted = split_reverted(made)

    assert kept == made.messages[:1]
    assert reverted == ["msg_1", "msg_2"]


def test_a_message_may_be_undone_from_a_part_on() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_1", "partID": "prt_1_2"})

    kept, reverted = split_reverted(made)

    assert [part.get("text") for part in kept[1].parts] == [None, "b"]
    assert reverted == ["msg_1", "msg_2"]


def test_the_place_decides_and_not_the_id() -> None:
    made = session(user(text("a"), id="msg_9"), user(text("b"), id="msg_1"), user(text("c")))
    made.info["revert"] = {"messageID": "msg_1"}

    kept, _ = split_reverted(made)

    assert [each.info["id"] for each in kept] == ["msg_9"]


def test_a_revert_to_a_message_that_is_gone_undoes_nothing() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_x"})

    assert split_reverted(made) == (made.messages, [])


HOLOGRAM = {"type": "hologram", "data": 1}


def test_unknown_parts_and_roles_are_counted_and_kept(tmp_path: Path) -> None:
    robot = user(text("beep"), role="robot")
    made = session(
        user(text("Hi"), HOLOGRAM), robot, agent(HOLOGRAM, {"text": "no type"}, text("Yes."))
    )
    stream = read_opencode(write_export(tmp_path / "ses_1.json", made))

    (sample,) = stream

    counted = {"part hologram": 2, "message of role robot": 1, "part of type NoneType": 1}
    assert sample.metadata["unknown_records"] == counted
    assert stream.reading.unknown_kinds == counted
    assert [m.text for m in sample.messages] == ["Hi", "Yes."]
    assert {**HOLOGRAM, "id": "prt_0_1"} in (sample.messages[0].details or {})["parts"]


def test_a_second_pass_counts_anew(tmp_path: Path) -> None:
    stream = read_opencode(
        write_export(tmp_path / "ses_1.json", session(user(text("Hi"), HOLOGRAM)))
    )

    first = iter(stream)
    list(stream)
    list(first)

    assert stream.reading.unknown_kinds == {"part hologram": 1}


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_sessions_hold_nothing_unknown(version: str) -> None:
    stream = read_opencode(RECORDED / version, children="separate")

    assert list(stream)
    assert not stream.reading.unknown_kinds
    assert not stream.reading.untested_versions


def test_a_file_cannot_make_the_list_of_kinds_endless(tmp_path: Path) -> None:
    parts = [{"type": f"kind{n}" + "x" * 1000} for n in range(150)]
    stream = read_opencode(write_export(tmp_path / "ses_1.json", session(user(text("a"), *parts))))

    list(stream)

    assert stream.reading.unknown_kinds.total() == 150
    assert stream.reading.unknown_kinds["others"] == 50
    assert max(map(len, stream.reading.unknown_kinds)) <= 80


CACHE = {"read": 20, "write": 0}
COUNTED = {
    "1.18, measured": (
        {"total": 132, "input": 100, "output": 9, "reasoning": 3, "cache": CACHE},
        "1.18.33",
    ),
    "1.1, where the output includes reasoning": (
        {"total": 132, "input": 100, "output": 12, "reasoning": 3, "cache": CACHE},
        "1.1.65",
    ),
    "1.0, without a total": ({"input": 100, "output": 12, "reasoning": 3, "cache": CACHE}, "1.0"),
    "0.5, where the input is the whole prompt": (
        {"input": 120, "output": 12, "reasoning": 3, "cache": CACHE},
        "0.5.29",
    ),
}


@pytest.mark.parametrize(("tokens", "version"), COUNTED.values(), ids=COUNTED)
def test_the_same_call_is_counted_the_same(tokens: dict[str, Any], version: str) -> None:
    usage = read_usage(tokens, 0.000126, version=version)

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (120, 12)
    assert (usage.cached_tokens, usage.reasoning_tokens) == (20, 3)
    assert usage.cost_usd == 0.000126


@pytest.mark.parametrize(
    "tokens", [None, 3, {}, {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0}}]
)
def test_nothing_counted_is_unknown_and_not_zero(tokens: Any) -> None:
    assert read_usage(tokens, 0, version="1.18.33") is None


def test_a_count_that_cannot_be_one_is_unknown() -> None:
    usage = read_usage({"input": -1, "output": 4, "cache": "x"}, "free", version="1.0")

    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens, usage.cost_usd) == (None, 4, None)
