"""Heads of sessions: what is not known is None."""

from assay.errors import BadRow
from assay.sessions.session_meta import SessionMeta, UnreadableSession


def test_what_is_not_known_of_a_session_is_none() -> None:
    head = SessionMeta("ses_1")

    assert (head.title, head.parent_id, head.created, head.updated) == ("", None, None, None)


def test_a_session_that_cannot_be_read_says_why() -> None:
    assert str(
        UnreadableSession("ses_1", BadRow("the file is truncated", where="a.json")).problem
    ) == ("a.json: the file is truncated")
