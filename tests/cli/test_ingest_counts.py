"""Every session that `assay ingest` reads is in the store or reported."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.store import Store


def write_sessions(path: Path, names: list[str]) -> Path:
    lines = []
    for place, name in enumerate(names):
        said = f"Session {place} of {name}."
        document = {
            "schema_version": "ATIF-v1.8",
            "session_id": name,
            "agent": {"name": "harness", "version": "1"},
            "steps": [{"step_id": 1, "source": "user", "message": said}],
        }
        lines.append(json.dumps(document))
    path.write_text("\n".join(lines) + "\n")
    return path


def ingest(
    path: Path, store: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any], list[str]]:
    status = main(["ingest", "atif", str(path), "--store", str(store), "--json"])
    told = json.loads(capsys.readouterr().out)
    with Store.open(store, create=False) as opened:
        return status, told, [sample.id for sample in opened.run("latest").samples()]


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 66, 67, 127, 128, 129, 130, 131, 200])
def test_as_many_sessions_are_stored_as_were_read(
    count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"s{number:03}" for number in range(count)]
    path = write_sessions(tmp_path / "sessions.jsonl", names)
    if not count:
        path.write_text("\n")

    status, told, stored = ingest(path, tmp_path / "a.db", capsys)

    assert stored == names
    assert (status, told["written"], told["skipped"]) == (0, count, [])


@pytest.mark.parametrize("apart", [1, 63, 64, 65, 130])
def test_a_second_session_of_the_same_id_is_reported_and_not_counted(
    apart: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"s{number:03}" for number in range(140)]
    names[apart] = names[0]
    path = write_sessions(tmp_path / "sessions.jsonl", names)

    status, told, stored = ingest(path, tmp_path / "a.db", capsys)

    assert len(stored) == len(set(stored)) == 139
    assert (status, told["written"]) == (3, 139)
    (skipped,) = told["skipped"]
    assert skipped["session"] == "s000"
    assert "another session with this id is already stored" in skipped["problem"]
    assert "-o FILE" in skipped["problem"]
    assert told["written"] + len(told["skipped"]) == len(names)


def test_a_session_that_the_store_did_not_take_is_named_on_stderr(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_sessions(tmp_path / "sessions.jsonl", ["a", "b", "a"])

    assert main(["ingest", "atif", str(path), "--store", str(tmp_path / "a.db")]) == 3

    captured = capsys.readouterr()
    assert captured.err.startswith(
        "skipped a: session a: another session with this id is already stored"
    )
    assert "sessions      2 written\n" in captured.out
    assert "skipped       1 that cannot be read or written\n" in captured.out
