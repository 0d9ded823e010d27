"""From a path to the sessions in it."""

from pathlib import Path

import pytest

from assay.errors import DatasetError
from assay.sessions import read_opencode
from assay.sessions.opencode.exports import ExportFiles
from assay.sessions.opencode.session_database import OpenCodeDatabase
from assay.sessions.opencode.stream import open_archive
from assay.sessions.opencode.trees import GlobalTree, ProjectTrees
from assay.sessions.session_choice import SessionMeta
from opencode_archives import (
    RECORDED,
    recorded,
    session,
    text,
    user,
    write_database,
    write_export,
    write_tree,
)

FOUND = {
    "1.18.33": OpenCodeDatabase,
    "1.18.33/opencode.db": OpenCodeDatabase,
    "1.18.33/export": ExportFiles,
    "1.1.65": GlobalTree,
    "1.1.65/storage": GlobalTree,
    "1.1.65/export": ExportFiles,
    "0.5.29": ProjectTrees,
    "0.5.29/project": ProjectTrees,
    "0.5.29/project/home-dev-projects": ProjectTrees,
    "0.5.29/project/home-dev-projects/storage": ProjectTrees,
    "0.1.174": ProjectTrees,
}


@pytest.mark.parametrize(("path", "kind"), FOUND.items(), ids=FOUND)
def test_every_place_of_every_layout_is_known(path: str, kind: type) -> None:
    archive = open_archive(RECORDED / path)

    assert isinstance(archive, kind)
    assert any(isinstance(head, SessionMeta) for head in archive.iterate_meta())
    archive.close()


def test_one_exported_file_is_enough() -> None:
    path = next((RECORDED / "1.1.65" / "export").glob("ses_*.json"))

    assert [
        head.id for head in open_archive(path).iterate_meta() if isinstance(head, SessionMeta)
    ] == [path.stem]


def test_the_database_goes_before_the_tree_that_was_imported_into_it(tmp_path: Path) -> None:
    made = session(user(text("hi")))
    write_tree(tmp_path, [made])
    write_database(tmp_path / "opencode.db", [made])
    write_database(tmp_path / "opencode-dev.db", [])

    archive = open_archive(tmp_path)

    assert len(list(archive.iterate_meta())) == 1
    assert isinstance(archive, OpenCodeDatabase)
    assert "opencode-dev.db belongs to another release channel" in archive.notes[0]
    assert "imported into opencode.db; the tree was not read" in archive.notes[1]
    archive.close()


def test_trees_that_were_moved_are_noted_and_not_counted_twice(tmp_path: Path) -> None:
    root = recorded("0.5.29", tmp_path)
    write_tree(root, [session(user(text("hi")))])

    archive = open_archive(root)

    assert isinstance(archive, GlobalTree)
    assert "before 0.6" in archive.notes[0]


@pytest.mark.parametrize("name", ["none", "empty", "other"])
def test_a_place_without_sessions_is_refused_with_what_to_give(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "package.json").write_text("{}")

    with pytest.raises(
        DatasetError,
        match=r"(does not exist|no OpenCode sessions)\n  hint: pass OpenCode's data folder",
    ):
        open_archive(tmp_path / name)


def test_a_broken_export_among_others_is_reported_by_its_name(tmp_path: Path) -> None:
    write_export(tmp_path / "ses_1.json", session(user(text("hi"))))
    (tmp_path / "ses_2.json").touch()
    (tmp_path / "ses_3.json").write_text("Error: no such session")
    (tmp_path / "notes.json").write_text("{}")
    stream = read_opencode(tmp_path)

    assert [sample.id for sample in stream] == ["ses_1"]
    assert [each.session_id for each in stream.reading.skipped] == ["ses_2", "ses_3"]
