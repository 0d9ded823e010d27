"""Which sessions are asked for."""

from datetime import UTC, datetime

import pytest

from assay.errors import BadRow
from assay.sessions.session_choice import SessionChoice, SessionMeta, UnreadableSession

HEAD = SessionMeta(
    id="ses_1",
    title="Fix the Login",
    created=1_700_000_000_000,
    updated=1_750_000_000_000,
    project="abc",
    directory="/srv/code/shop",
)


def choice(**given: object) -> SessionChoice:
    return SessionChoice(**given)  # type: ignore[arg-type]  # one keyword of each type


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


@pytest.mark.parametrize(
    "asked",
    [
        choice(),
        choice(title="login"),
        choice(sessions=frozenset({"ses_1", "ses_2"})),
        choice(since=at(1_750_000_000_000)),
        choice(project="abc"),
        choice(project="shop"),
        choice(project="/srv/code"),
        choice(project="/srv/code/shop/"),
        choice(project="shop", title="FIX"),
    ],
)
def test_a_session_that_fits_is_taken(asked: SessionChoice) -> None:
    assert asked.fits(HEAD)


@pytest.mark.parametrize(
    "asked",
    [
        choice(title="logout"),
        choice(sessions=frozenset({"ses_2"})),
        choice(since=at(1_750_000_000_001)),
        choice(project="code"),
        choice(project="/srv/co"),
        choice(project="shop", title="logout"),
    ],
)
def test_a_session_that_does_not_fit_is_left_out(asked: SessionChoice) -> None:
    assert not asked.fits(HEAD)


def test_a_session_of_unknown_age_is_not_taken_to_be_old() -> None:
    assert choice(since=at(1)).fits(SessionMeta(id="ses_1"))


def test_a_session_of_an_unknown_place_is_of_no_folder() -> None:
    assert not choice(project="shop").fits(SessionMeta(id="ses_1"))


def test_a_folder_of_windows_is_understood() -> None:
    head = SessionMeta(id="ses_1", directory="C:\\code\\shop")

    assert choice(project="shop").fits(head)
    assert choice(project="C:\\code").fits(head)


def test_what_is_not_known_of_a_session_is_none() -> None:
    head = SessionMeta("ses_1")

    assert (head.title, head.parent_id, head.created, head.updated) == ("", None, None, None)


def test_a_session_that_cannot_be_read_says_why() -> None:
    assert str(
        UnreadableSession("ses_1", BadRow("the file is truncated", where="a.json")).problem
    ) == ("a.json: the file is truncated")
