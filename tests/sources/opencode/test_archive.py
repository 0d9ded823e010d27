"""Reading stored JSON: what is accepted, what is unknown, what is refused."""

from pathlib import Path

import pytest

from assay.errors import BadRow
from assay.sources.opencode import archive
from assay.sources.opencode.archive import Head, head_of, in_order, millis, parse_json, read_object
from opencode_archives import session, text, user


def test_what_has_a_wrong_type_in_a_description_is_unknown() -> None:
    head = head_of({"title": 3, "parentID": [], "time": "now", "projectID": None}, "ses_1")

    assert head == Head(id="ses_1")


@pytest.mark.parametrize("value", [None, True, "1", -1, 1e300, float("nan")])
def test_a_time_that_cannot_be_one_is_unknown(value: object) -> None:
    assert millis(value) is None


def test_a_number_beyond_json_is_refused() -> None:
    with pytest.raises(BadRow, match="here: is not JSON: Infinity"):
        parse_json('{"cost": Infinity}', where="here")


def test_a_file_too_large_to_be_true_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    monkeypatch.setattr(archive, "LARGEST_FILE", 4)

    with pytest.raises(BadRow, match=r"a\.json: is larger than 4 bytes"):
        read_object(tmp_path / "a.json")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match=r"a\.json: cannot be read: No such file"):
        read_object(tmp_path / "a.json")


def test_a_message_without_a_time_goes_first() -> None:
    made = session(user(text("a")), user(text("b"), time={"created": None}))

    assert [each.parts[0]["text"] for each in in_order(made.messages)] == ["b", "a"]
