"""Which transcripts repeat the history of another one."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.sessions.claude_code_forks import ForkOrigin, find_fork_origins
from assay.sessions.session_lines import iterate_numbered_lines
from line_counts import count_lines


def write(folder: Path, name: str, *records: dict[str, Any] | str) -> Path:
    path = folder / f"{name}.jsonl"
    lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def turn(uuid: str, minute: int | None = None) -> dict[str, Any]:
    stamp = None if minute is None else f"2026-11-16T12:{minute:02}:00.000Z"
    return {"type": "user", "uuid": uuid, "timestamp": stamp}


def queued(minute: int) -> dict[str, Any]:
    return {"type": "queue-operation", "timestamp": f"2026-11-16T12:{minute:02}:00.000Z"}


def origins(folder: Path) -> dict[str, tuple[str, int]]:
    found = find_fork_origins(sorted(folder.glob("*.jsonl")))
    return {file.stem: (each.session_id, each.records) for file, each in found.items()}


def test_sessions_with_no_record_in_common_have_no_origin(tmp_path: Path) -> None:
    write(tmp_path, "a", turn("1", 1), turn("2", 2))
    write(tmp_path, "b", turn("3", 1))
    write(tmp_path, "c", queued(1))

    assert origins(tmp_path) == {}


def test_a_fork_repeats_the_whole_history_of_its_origin(tmp_path: Path) -> None:
    write(tmp_path, "origin", turn("1", 1), turn("2", 2))
    write(tmp_path, "a-fork", turn("1", 1), turn("2", 2), turn("3", 9))

    assert origins(tmp_path) == {"a-fork": ("origin", 2)}


def test_the_origin_may_go_on_after_the_fork(tmp_path: Path) -> None:
    write(tmp_path, "origin", queued(1), turn("1", 1), turn("2", 2), turn("4", 30))
    write(tmp_path, "a-fork", queued(9), turn("1", 1), turn("2", 2), turn("3", 9))

    assert origins(tmp_path) == {"a-fork": ("origin", 2)}


def test_a_fork_of_a_fork_names_the_fork(tmp_path: Path) -> None:
    write(tmp_path, "origin", turn("1", 1))
    write(tmp_path, "b-fork", turn("1", 1), turn("2", 2))
    write(tmp_path, "a-fork", turn("1", 1), turn("2", 2), turn("3", 3))

    assert origins(tmp_path) == {"b-fork": ("origin", 1), "a-fork": ("b-fork", 2)}


def test_a_fork_after_a_compaction_repeats_what_came_after_it(tmp_path: Path) -> None:
    write(tmp_path, "origin", turn("1", 1), turn("boundary", 2), turn("2", 3))
    write(tmp_path, "a-fork", queued(9), turn("boundary", 2), turn("2", 3), turn("3", 9))

    assert origins(tmp_path) == {"a-fork": ("origin", 2)}


def test_a_copy_of_a_session_is_not_a_fork_of_it(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    files = [write(folder, "a", turn("1", 1)) for folder in (tmp_path, tmp_path / "copy")]

    assert find_fork_origins(files) == {}


def test_an_id_inside_a_record_is_not_the_id_of_one(tmp_path: Path) -> None:
    write(tmp_path, "a", turn("1", 1))
    write(tmp_path, "b", {**turn("2", 2), "toolUseResult": {"uuid": "1"}})

    assert origins(tmp_path) == {}


def test_lines_and_files_that_cannot_be_read_are_passed_over(tmp_path: Path) -> None:
    write(tmp_path, "a", "{", turn("1"), turn("2"))
    fork = write(tmp_path, "b", turn("1"), "[]", turn("2"), turn("3"))
    (tmp_path / "folder.jsonl").mkdir()

    found = find_fork_origins(sorted(tmp_path.glob("*.jsonl")))

    assert found == {fork: ForkOrigin("a", 2)}


def test_each_of_many_forks_is_read_a_fixed_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forks, opened = 200, []

    def counted(path: Path) -> Iterator[tuple[int, Any]]:
        opened.append(path)
        return iterate_numbered_lines(path)

    write(tmp_path, "origin", turn("1", 1))
    for number in range(forks):
        write(tmp_path, f"f{number}", turn("1", 1), turn(f"own {number}", 2))
    monkeypatch.setattr("assay.sessions.claude_code_forks.iterate_numbered_lines", counted)

    assert len(origins(tmp_path)) == forks
    # For its first id, for all its ids, and once more as one of several that share some.
    assert len(opened) == 3 * (forks + 1)


def test_the_work_grows_with_the_number_of_forks(tmp_path: Path) -> None:
    def count_work(forks: int) -> int:
        folder = tmp_path / str(forks)
        folder.mkdir()
        for number in range(forks):
            write(folder, f"f{number}", turn("1", 1), turn(f"own {number}", 2))
        files = sorted(folder.glob("*.jsonl"))
        with count_lines() as count:
            find_fork_origins(files)
            return count()

    assert count_work(80) < 2.5 * count_work(40)
