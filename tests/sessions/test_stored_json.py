"""Reading stored JSON: what is accepted, what is refused."""

import os
from pathlib import Path

import pytest

from assay.errors import BadRow
from assay.sessions import stored_json
from assay.sessions.stored_json import parse_json, read_stored_bytes, read_stored_object


def test_a_number_beyond_json_is_refused() -> None:
    with pytest.raises(BadRow, match="here: the text is not JSON: Infinity"):
        parse_json('{"cost": Infinity}', where="here")


def test_a_file_too_large_to_be_true_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}')
    monkeypatch.setattr(stored_json, "LARGEST_FILE", 4)

    with pytest.raises(BadRow, match=r"a\.json: the file exceeds 4 bytes"):
        read_stored_object(tmp_path / "a.json")


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadRow, match=r"a\.json: the file cannot be read: No such file"):
        read_stored_object(tmp_path / "a.json")


def test_half_a_character_of_a_cut_output_is_replaced() -> None:
    assert parse_json('{"a": "\\ud83d"}', where="here") == {"a": "\ufffd"}


def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")

    with pytest.raises(BadRow, match="the path is not a regular file"):
        read_stored_bytes(tmp_path / "pipe.json")
