"""Stored sessions: what is unknown of them, and in which order their messages are."""

import pytest

from assay.sessions.foreign_values import parse_epoch_ms
from assay.sessions.opencode.archive import read_session_meta, sort_messages
from assay.sessions.session_choice import SessionMeta
from opencode_archives import session, text, user


def test_what_has_a_wrong_type_in_a_description_is_unknown() -> None:
    head = read_session_meta(
        {"title": 3, "parentID": [], "time": "now", "projectID": None}, "ses_1"
    )

    assert head == SessionMeta(id="ses_1")


@pytest.mark.parametrize("value", [None, True, "1", -1, 1e300, float("nan")])
def test_a_time_that_cannot_be_one_is_unknown(value: object) -> None:
    assert parse_epoch_ms(value) is None


def test_a_message_without_a_time_goes_first() -> None:
    made = session(user(text("a")), user(text("b"), time={"created": None}))

    assert [each.parts[0]["text"] for each in sort_messages(made.messages)] == ["b", "a"]
