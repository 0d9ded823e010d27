"""`assay ingest`: what it writes, what it says, and what its exit status tells."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from assay.cli import main
from assay.cli.ingest import find_default_path
from assay.errors import AssayError, StoreError, WireError
from assay.formats.atif import from_atif
from assay.formats.eval_record import from_eval_record
from assay.store import Store
from assay.store.insert_rows import build_result_row
from assay.types import Sample
from opencode_archives import (
    RECORDED,
    agent,
    recorded,
    session,
    text,
    tool,
    user,
    write_database,
    write_export,
)
from plugin_package import install_package

DATA = str(RECORDED / "1.18.33")


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def ingest(*arguments: str) -> int:
    return main(["ingest", "opencode", *arguments])


def test_a_file_of_samples_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "s.jsonl"

    assert ingest(DATA, "-o", str(target)) == 0

    samples = [Sample.from_dict(each) for each in lines_of(target)]
    assert len(samples) == 8
    said = capsys.readouterr().out
    assert "sessions      8 written, 1 of subagents inside them\n" in said
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize(
    ("form", "read"),
    [("eval", from_eval_record), ("atif", from_atif), ("sample", Sample.from_dict)],
)
def test_each_format_holds_every_session(form: str, read: Any, tmp_path: Path) -> None:
    target = tmp_path / "s.jsonl"

    assert ingest(DATA, "-o", str(target), "--format", form, "--children", "separate") == 0

    assert len({read(each).id for each in lines_of(target)}) == 9


def test_the_path_may_stand_after_options(tmp_path: Path) -> None:
    target = tmp_path / "s.jsonl"

    assert ingest("--children", "drop", DATA, "--json", "-o", str(target)) == 0
    assert main(["ingest", "-o", str(target), "opencode", "--children", "drop", DATA]) == 0

    assert len(lines_of(target)) == 8


@pytest.mark.parametrize("form", ["sample", "eval", "atif", "vertex"])
def test_outputs_are_cut_where_asked_and_the_account_says_so(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = session(user(text("a")), agent(tool("x", output="0123456789"), text("done")))
    export = write_export(tmp_path / "ses_1.json", made)
    target = tmp_path / "s.jsonl"

    ingest(str(export), "-o", str(target), "--format", form)
    whole = target.read_text("utf-8")
    capsys.readouterr()
    ingest(str(export), "-o", str(target), "--format", form, "--max-output-chars", "4")

    cut = target.read_text("utf-8")
    assert ("0123456789" in whole, "0123456789" in cut) == (True, False)
    assert "0123… [6 more characters]" in cut
    assert "outputs       1 truncated after 4 characters\n" in capsys.readouterr().out


def test_the_store_keeps_outputs_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ingest(DATA, "--store", str(tmp_path / "a.db"), "--max-output-chars", "4") == 2

    assert "--max-output-chars has no effect without an output file" in capsys.readouterr().err
    assert not (tmp_path / "a.db").exists()


def test_without_a_file_sessions_go_to_the_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = tmp_path / "assay.db"

    assert ingest(DATA, "--store", str(where)) == 0

    with Store.open(where, create=False) as store:
        run = store.run("latest")
        samples = list(run.samples())
        assert run.status == "completed"
        assert run.spec.dataset == DATA
    assert len(samples) == 8
    assert samples[0].metadata["source"] == "opencode"
    assert f"assay show {run.id} --store {where}" in capsys.readouterr().out


def test_the_store_gets_a_run_though_nothing_was_found(tmp_path: Path) -> None:
    assert ingest(DATA, "--store", str(tmp_path / "a.db"), "--title", "no such title") == 0

    with Store.open(tmp_path / "a.db", create=False) as store:
        assert list(store.run("latest").samples()) == []


def test_a_session_that_cannot_be_stored_is_skipped(tmp_path: Path) -> None:
    database = broken_database(tmp_path)

    assert ingest(str(database), "--store", str(tmp_path / "a.db")) == 3

    with Store.open(tmp_path / "a.db", create=False) as store:
        assert [sample.id for sample in store.run("latest").samples()] == ["ses_2"]


def broken_database(folder: Path) -> Path:
    """Two sessions, of which the first has a message that is cut off."""
    made = [
        session(user(text("a"), id="msg_a"), agent(tool("x", output="1"), id="msg_b")),
        session(user(text("c"), id="msg_c"), id="ses_2"),
    ]
    for place, part in enumerate(p for each in made for m in each.messages for p in m.parts):
        part["id"] = f"prt_{place}"
    path = write_database(folder / "opencode.db", made)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE message SET data = '{' WHERE id = 'msg_b'")
    connection.close()
    return path


def test_a_corrupt_session_is_named_and_exit_status_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "s.jsonl"

    assert ingest(str(broken_database(tmp_path)), "-o", str(target), "--json") == 3

    captured = capsys.readouterr()
    assert captured.err.startswith("skipped ses_1: message msg_b: the text is not JSON")
    told = json.loads(captured.out)
    assert (told["written"], [each["session"] for each in told["skipped"]]) == (1, ["ses_1"])
    assert [each["id"] for each in lines_of(target)] == ["ses_2"]


def test_a_session_that_cannot_be_written_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = session(user(text("a")))
    path = write_export(tmp_path / "ses_1.json", made)
    # Read as an infinity, for which JSON has no word.
    path.write_text(path.read_text().replace('"A session"', '"A session", "odd": 1e999'))

    assert ingest(str(path), "-o", str(tmp_path / "s.jsonl")) == 3

    assert (
        "skipped ses_1: the session cannot be written: Sample: the object contains Infinity"
        in capsys.readouterr().err
    )
    assert lines_of(tmp_path / "s.jsonl") == []


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_unknown_kinds_and_versions_are_reported_and_the_sessions_are_written(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = {"type": "hologram"}
    made = session(user(text("a"), odd), agent(odd, text("b")), version="99.1.0")
    write_export(tmp_path / "ses_1.json", made)

    assert ingest(str(tmp_path), "--store", str(tmp_path / "a.db"), *words) == 0

    told = capsys.readouterr().out
    if words:
        account = json.loads(told)
        assert (account["written"], account["unknown_kinds"]) == (1, {"part hologram": 2})
        assert account["untested_versions"] == {"99.1.0": 1}
    else:
        assert "unknown       2 records of 1 unknown kind: part hologram (2)\n" in told
        assert "note          1 session of version 99.1.0: assay is tested with" in told


def test_a_session_that_is_not_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ingest(DATA, "-o", str(tmp_path / "s.jsonl"), "--session", "ses_x") == 3

    assert "missing       ses_x\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "count"),
    [
        (["--title", "compacted"], 1),
        (["--project", "projects"], 8),
        (["--project", "elsewhere"], 0),
        (["--since", "2099-01-01"], 0),
        (["--since", "2026-11-15"], 8),
        (["--session", "ses_e1f964decffeQnEYQ9ONT4kNzs"], 1),
        (["--children", "drop"], 8),
    ],
)
def test_sessions_can_be_chosen(options: list[str], count: int, tmp_path: Path) -> None:
    target = tmp_path / "s.jsonl"

    assert ingest(DATA, "-o", str(target), *options) == 0

    assert len(lines_of(target)) == count


def test_reverted_and_synthetic_texts_can_be_kept(tmp_path: Path) -> None:
    target = tmp_path / "s.jsonl"
    ingest(DATA, "-o", str(target))
    plain = target.read_text("utf-8")

    ingest(DATA, "-o", str(target), "--keep-reverted", "--synthetic")

    assert len(target.read_text("utf-8")) > len(plain)


def test_lines_can_go_to_stdout_with_the_account_on_stderr(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    assert ingest(DATA, "-o", "-") == 0

    captured = capfdbinary.readouterr()
    assert len(captured.out.splitlines()) == 8
    assert b"sessions      8 written" in captured.err


def test_this_machines_sessions_are_found_without_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded("1.1.65", tmp_path).rename(tmp_path / "opencode")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("OPENCODE_DB", raising=False)

    assert ingest("-o", str(tmp_path / "s.jsonl")) == 0

    assert len(lines_of(tmp_path / "s.jsonl")) == 8


def test_the_database_may_be_named_by_the_environment(tmp_path: Path) -> None:
    share = {"XDG_DATA_HOME": str(tmp_path)}

    assert find_default_path("opencode", {}) == Path.home() / ".local/share/opencode"
    assert find_default_path("opencode", share) == tmp_path / "opencode"
    assert (
        find_default_path("opencode", {**share, "OPENCODE_DB": "x.db"})
        == tmp_path / "opencode/x.db"
    )
    assert find_default_path("opencode", {**share, "OPENCODE_DB": "/a/x.db"}) == Path("/a/x.db")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere", "-o", "s.jsonl"], "nowhere: the file or folder does not exist"),
        ([DATA, "--format", "eval"], "--format eval has no effect without an output file"),
        ([DATA, "-o", "s", "--since", "yesterday"], "'yesterday' is neither a date"),
        ([DATA, "-o", "none/s.jsonl"], "none/s.jsonl cannot be written: No such file"),
        ([DATA, "-o", "s", "--children", "all"], "argument --children: invalid choice"),
    ],
)
def test_a_wrong_request_exits_2_and_writes_nothing(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert ingest(*arguments) == 2

    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("opencode", "export/ses_1.json"),
        ("opencode", "opencode.db-wal"),
        ("claude-code", "projects/-p/session.jsonl"),
        ("codex", "sessions/rollout-2026-11-16T12-00-00-a.jsonl.zst"),
        ("atif", "runs/trajectory.json"),
    ],
)
def test_a_recorded_session_in_the_folder_is_never_written_over(
    source: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "recorded" / name
    file.parent.mkdir(parents=True)
    file.write_text("a session")

    assert main(["ingest", source, str(tmp_path / "recorded"), "-o", str(file)]) == 2

    assert "may be a recorded session" in capsys.readouterr().err
    assert file.read_text() == "a session"


@pytest.mark.parametrize("form", ["sample", "eval"])
def test_an_output_in_the_folder_that_is_read_is_replaced(form: str, tmp_path: Path) -> None:
    step = {"step_id": 1, "source": "user", "message": "Hi"}
    agent_ = {"name": "a", "version": "1"}
    document = {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": agent_, "steps": [step]}
    (tmp_path / "trajectory.json").write_text(json.dumps(document))
    target = tmp_path / "out.jsonl"

    for _ in range(2):
        command = ["ingest", "atif", str(tmp_path), "-o", str(target), "--format", form]
        assert main(command) == 0

    assert len(lines_of(target)) == 1


def test_what_is_read_is_never_written_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = recorded("1.18.33", tmp_path)
    before = (folder / "opencode.db").read_bytes()

    assert ingest(str(folder), "-o", str(folder / "opencode.db")) == 2

    assert "is also an input file; choose another path" in capsys.readouterr().err
    assert (folder / "opencode.db").read_bytes() == before


def test_an_earlier_file_stays_when_reading_fails(tmp_path: Path) -> None:
    target = tmp_path / "s.jsonl"
    target.write_text("kept\n")

    assert ingest(str(tmp_path / "none"), "-o", str(target)) == 2

    assert target.read_text() == "kept\n"
    assert [path.name for path in tmp_path.iterdir()] == ["s.jsonl"]


def test_foreign_text_never_reaches_the_terminal_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ses_\x1b[2J.json").write_text('{"info": 1}')
    write_export(tmp_path / "ses_1.json", session(user(text("a"))))

    assert ingest(str(tmp_path), "-o", str(tmp_path / "s.jsonl")) == 3

    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize("source", ["claude-code", "codex"])
def test_other_recorders_are_ingested_too(
    source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures" / source.replace("-", "_")
    target = tmp_path / "samples.jsonl"

    status = main(["ingest", source, str(fixtures), "-o", str(target), "--format", "sample"])

    samples = [Sample.from_json(line) for line in target.read_text("utf-8").splitlines()]
    assert status in (0, 3), capsys.readouterr().err
    assert samples
    assert all(sample.trajectory is not None for sample in samples)


def test_rows_for_vertex_are_written(tmp_path: Path) -> None:
    fixtures = Path(__file__).parents[1] / "fixtures" / "codex"
    target = tmp_path / "rows.jsonl"

    main(["ingest", "codex", str(fixtures), "-o", str(target), "--format", "vertex"])

    rows = [json.loads(line) for line in target.read_text("utf-8").splitlines()]
    assert rows
    assert all(row.keys() == rows[0].keys() for row in rows)
    assert all("agent_data" in row for row in rows)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["atif", "x", "--synthetic"], "--synthetic has no effect on atif sessions"),
        (["codex", "x", "--raw-records"], "--raw-records has no effect on codex sessions"),
        (["inspect", "x", "--children", "drop"], "--children has no effect on inspect sessions"),
        (["atif"], "atif has no default folder"),
    ],
)
def test_what_a_source_does_not_know_is_refused(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ingest", *words]) == 2
    assert problem in capsys.readouterr().err


def test_each_recorder_has_its_folder(tmp_path: Path) -> None:
    assert find_default_path("claude-code", {}) == Path.home() / ".claude"
    assert find_default_path("claude-code", {"CLAUDE_CONFIG_DIR": "/c"}) == Path("/c")
    assert find_default_path("codex", {}) == Path.home() / ".codex"
    assert find_default_path("codex", {"CODEX_HOME": "/x"}) == Path("/x")


@pytest.mark.parametrize(
    ("error", "printed", "status"),
    [
        (WireError("odd"), "skipped ", "completed"),
        (StoreError("the disk is full"), "the disk is full", "running"),
    ],
)
def test_a_bad_sample_is_skipped_and_a_failing_store_ends_the_import(
    error: AssayError,
    printed: str,
    status: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> object:
        raise error

    monkeypatch.setattr("assay.runner.record_run.build_result_row", refuse)

    assert ingest(DATA, "--store", str(tmp_path / "a.db")) == 3

    assert capsys.readouterr().err.startswith(printed)
    with Store.open(tmp_path / "a.db", create=False) as store:
        assert [row.status for row in store.runs()] == [status]


def test_an_interrupted_import_is_resumed_and_stores_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where, recorded = ["--store", str(tmp_path / "a.db")], 0

    def fail_after_two(*given: Any) -> object:
        nonlocal recorded
        recorded += 1
        if recorded > 2:
            raise StoreError("the disk is full")
        return build_result_row(*given)

    with monkeypatch.context() as patched:
        patched.setattr("assay.runner.record_run.build_result_row", fail_after_two)
        assert ingest(DATA, *where) == 3
    with Store.open(tmp_path / "a.db", create=False) as store:
        run, total = store.run("latest").id, store.run("latest").totals.recorded
    assert total == 2
    capsys.readouterr()

    assert ingest(DATA, *where, "--resume", run, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert ingest(DATA, "-o", str(tmp_path / "all.jsonl")) == 0
    names = [json.loads(line)["id"] for line in (tmp_path / "all.jsonl").read_text().splitlines()]

    with Store.open(tmp_path / "a.db", create=False) as store:
        resumed = store.run("latest")
        assert (resumed.id, resumed.row().status) == (run, "completed")
        assert [sample.id for sample in resumed.samples()] == names
    assert (told["run"], told["written"], told["skipped"]) == (run, len(names), [])
    assert ingest(DATA, *where, "--resume", run, "--children", "separate") == 2
    assert ingest(DATA, "-o", "x.jsonl", "--resume", run) == 2


SOURCE_CODE = """
from assay.sessions import RecordedSession, SessionMeta
from assay.types import Message, Sample

def read(path):
    sample = Sample(id="one", prompt=[Message(role="user", content=path.read_text())])
    yield RecordedSession(SessionMeta("one"), lambda: sample)
"""


def test_the_source_of_a_plugin_is_read_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = {"session_sources.acme": "acme_assay:read"}
    install_package(tmp_path, monkeypatch, entries, code=SOURCE_CODE)
    recorded, target = tmp_path / "recorded.txt", tmp_path / "s.jsonl"
    recorded.write_text("Hello")

    assert main(["ingest", "acme", str(recorded), "-o", str(target)]) == 0
    assert [json.loads(line)["id"] for line in target.read_text().splitlines()] == ["one"]

    for words, message in (
        (["acme"], "acme has no default folder"),
        (["acmee", str(recorded)], "unknown source 'acmee'"),
        (["acme", str(recorded), "--synthetic"], "--synthetic has no effect on acme sessions"),
        (["acme", str(recorded), "-o", str(recorded)], "is also an input file"),
        (["acme", str(tmp_path), "-o", str(target)], "may be a recorded session"),
    ):
        assert main(["ingest", *words]) == 2
        assert message in capsys.readouterr().err
    assert recorded.read_text() == "Hello"
