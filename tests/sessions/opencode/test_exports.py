"""Files that `opencode export` wrote."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import BadRow
from assay.sessions.opencode.exports import ExportFiles, is_export, read_export
from assay.sessions.session_choice import SessionMeta, UnreadableSession
from opencode_archives import RECORDED, VERSIONS, exported, session, text, user, write_export


@pytest.mark.parametrize("version", VERSIONS[2:])
def test_a_file_is_read_as_it_is(version: str) -> None:
    for session_id, value in exported(version).items():
        path = RECORDED / version / "export" / f"{session_id}.json"

        read = read_export(path)

        assert is_export(path)
        assert read.info == value["info"]
        assert [{"info": m.info, "parts": m.parts} for m in read.messages] == value["messages"]


@pytest.mark.parametrize("announced", ["Exporting session: ses_1", "Exporting session: ses_1\n"])
def test_an_announcement_that_got_into_the_file_is_passed_over(
    announced: str, tmp_path: Path
) -> None:
    path = write_export(tmp_path / "a.json", session(user(text("hi"))))
    path.write_text(announced + path.read_text())

    assert is_export(path)
    assert read_export(path).info["id"] == "ses_1"


def test_two_files_with_one_session_are_read_once_with_a_note(tmp_path: Path) -> None:
    made = session(user(text("hi")))
    files = [write_export(tmp_path / name, made) for name in ("clean-ses_1.json", "ses_1.json")]
    archive = ExportFiles(tmp_path, files)

    assert [head.id for head in archive.iterate_meta() if isinstance(head, SessionMeta)] == [
        "ses_1"
    ]
    assert archive.notes == [
        "clean-ses_1.json and ses_1.json contain the same session; only ses_1.json is read"
    ]


def test_children_are_known_when_their_files_are_there(tmp_path: Path) -> None:
    made = [session(), session(id="ses_2", parentID="ses_1")]
    archive = ExportFiles(
        tmp_path, [write_export(tmp_path / f"{each.info['id']}.json", each) for each in made]
    )

    assert [each.id for each in archive.children_of("ses_1") if isinstance(each, SessionMeta)] == [
        "ses_2"
    ]
    assert archive.has("ses_2")
    assert archive.load("ses_2").info["parentID"] == "ses_1"
    with pytest.raises(BadRow, match="the session does not exist"):
        archive.load("ses_3")


BROKEN = {
    "not JSON": "{",
    "no session": {"messages": []},
    "a session without an id": {"info": {}, "messages": []},
    "no messages": {"info": {"id": "ses_1"}},
    "a message that is none": {"info": {"id": "ses_1"}, "messages": [1]},
    "a message without parts": {"info": {"id": "ses_1"}, "messages": [{"info": {}}]},
    "a part that is none": {"info": {"id": "ses_1"}, "messages": [{"info": {}, "parts": [1]}]},
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_named(content: Any, tmp_path: Path) -> None:
    path = tmp_path / "ses_1.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))

    (found,) = ExportFiles(tmp_path, [path]).iterate_meta()

    assert isinstance(found, UnreadableSession)
    assert found.session_id == "ses_1"
    assert str(path) in str(found.problem)


def test_other_json_is_no_export(tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "info"}')

    assert not is_export(tmp_path / "package.json")
    assert not is_export(tmp_path)
