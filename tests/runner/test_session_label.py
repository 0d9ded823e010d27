"""Labels of recorded sessions."""

from dataclasses import asdict
from typing import Any

from assay.runner import build_session_label
from assay.types import Sample
from make import asked, said, sample


def session_sample(**given: Any) -> Sample:
    metadata = {"source": "opencode", "content_id": "c"}
    return sample(asked("Do the tests pass?"), said("No."), input=given, metadata=metadata)


def test_a_session_is_known_by_title_date_and_place() -> None:
    found = build_session_label(
        session_sample(
            title="Failing test",
            created="2026-02-14T01:30:00.125+02:00",
            project="shop",
            directory="/srv/shop",
        )
    )

    assert found is not None
    assert asdict(found) == {
        "title": "Failing test",
        "created": "2026-02-13T23:30:00Z",
        "project": "shop",
        "directory": "/srv/shop",
    }
    assert (found.date, found.place) == ("2026-02-13 23:30", "/srv/shop")


def test_a_session_without_a_time_is_dated_by_its_first_message() -> None:
    made = session_sample(created="yesterday", project="shop")
    stamped = made.messages[1].model_copy(update={"timestamp": "2026-02-14T09:30:00Z"})
    assert made.trajectory is not None
    made.trajectory.messages[1] = stamped

    found = build_session_label(made)

    assert found is not None
    assert (found.date, found.place) == ("2026-02-14 09:30", "shop")


def test_what_was_not_recorded_is_unknown() -> None:
    found = build_session_label(session_sample(created=5, directory=["x"]))

    assert found is not None
    assert set(asdict(found).values()) == {None}
    assert (found.date, found.place) == ("date unknown", "")


def test_a_row_of_a_dataset_is_no_session_though_it_names_a_source() -> None:
    row = sample(asked("2+2?"), said("4"), metadata={"source": "gsm8k"}, input={"title": "Sums"})

    assert build_session_label(row) is None
