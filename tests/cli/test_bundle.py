"""`assay bundle` and `assay runs import` from the inside. Processes are in `tests/flows/`."""

import json
import os
import re
import shlex
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from assay.cli import bundle as bundle_command
from assay.cli import main
from assay.cli.bundle_input import open_bundle_input
from assay.datasets.bundle_file import Bundle
from assay.store import Store
from bundled_projects import FILE, HELPER, bundle, names, run


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["bundle", "latest", "-o", "x.tar.gz", *words]) == 2
    assert not Path("x.tar.gz").exists()
    return capsys.readouterr().err


def lines(path: Path, member: str) -> list[dict[str, Any]]:
    with tarfile.open(path) as archive:
        file = archive.extractfile(member)
        assert file is not None
        return [json.loads(line) for line in file]


def test_a_bundle_has_results_used_rows_code_and_prompts(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("--max-samples", "4")
    path = bundle()

    assert names(path) == [
        "manifest.json",
        "code/evals/made_up_evaluation.py",
        "code/evals/made_up_helper.py",
        "code/evals/prompts/system.txt",
        "dataset.jsonl",
        "results.jsonl",
    ]
    assert [each["score"]["score"] for each in lines(path, "results.jsonl")] == [1, 1, 1, 0]
    rows = lines(path, "dataset.jsonl")
    assert [each["id"] for each in rows] == ["q0", "q1", "q2", "q3"]
    assert not any({"score", "trajectory", "status"} & each.keys() for each in rows)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert "assay eval --bundle x.tar.gz" in capsys.readouterr().out


def test_a_run_is_bundled_from_another_folder(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    here = names(bundle())
    monkeypatch.chdir(elsewhere)
    store = project / ".assay" / "assay.db"

    there = names(bundle("--store", str(store)))

    assert there == here
    assert main(["eval", "--bundle", "x.tar.gz", "--trust", "--quiet"]) == 0


def test_the_command_that_repeats_a_bundle_is_quoted(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["eval", "evals/made_up_evaluation.py", "--quiet"])

    assert main(["bundle", "latest", "-o", "it's mine.tar.gz"]) == 0

    command = capsys.readouterr().out.splitlines()[-1]
    assert shlex.split(command) == ["assay", "eval", "--bundle", "it's mine.tar.gz"]


def test_the_same_run_gives_the_same_bytes(project: Path) -> None:
    run()
    first, second = bundle(), bundle(name="y.tar.gz")
    assert first.read_bytes() == second.read_bytes()


def test_repeats_are_results_of_one_row(project: Path) -> None:
    run("--repeats", "3")
    path = bundle()
    assert len(lines(path, "results.jsonl")) == 18
    assert len(lines(path, "dataset.jsonl")) == 6


def test_a_bundle_does_not_overwrite_a_file(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    path = bundle()
    assert main(["bundle", "latest", "-o", str(path)]) == 2
    assert "x.tar.gz already exists" in capsys.readouterr().err
    bundle("--force")


@pytest.mark.parametrize("name", ["x.zip", "x.json", "missing/x.tar.gz"])
def test_a_file_that_cannot_be_a_bundle_is_refused(name: str, project: Path) -> None:
    run()
    assert main(["bundle", "latest", "-o", name]) == 2


def test_code_that_changed_since_the_run_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    (project / "evals" / "made_up_helper.py").write_text(f"{HELPER}\n# another line\n")
    assert "changed since the run was made: evals/made_up_helper.py" in refused(capsys)
    bundle("--allow-changed-code")


def test_a_run_without_recorded_code_takes_the_named_file_or_none(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    with Store.open(create=False) as store, store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_run SET config = ?", "{}")
    assert "does not record which file defines it" in refused(capsys)
    assert "code/evals/made_up_helper.py" in names(bundle("--code", "evals/made_up_evaluation.py"))
    data_only = bundle("--no-code", name="y.tar.gz")
    assert names(data_only) == ["manifest.json", "dataset.jsonl", "results.jsonl"]
    assert main(["eval", "--bundle", str(data_only), "--trust"]) == 2
    assert "contains no code to run" in capsys.readouterr().err


def test_moved_code_is_missed_with_the_way_out(
    project: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    (project / "evals" / "made_up_evaluation.py").rename(project / "moved.py")
    assert "evals/made_up_evaluation.py" in refused(capsys)
    assert "name the file with --code" in refused(capsys, "--allow-changed-code")


def test_secrets_are_neither_in_samples_nor_in_the_manifest(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "correct-horse-battery-9"
    with (project / "evals" / "rows.jsonl").open("a") as rows:
        rows.write(json.dumps({"id": "q9", "question": f"say {secret}", "answer": ""}) + "\n")
    run("--name", f"with {secret}")
    monkeypatch.setenv("SOME_API_KEY", secret)
    path = bundle()
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            assert secret.encode() not in file.read(), member.name
    assert Bundle.open(path).manifest.redacted == 2


def test_a_secret_in_the_code_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "evals" / "made_up_helper.py").write_text(f'{HELPER}\nAPI_KEY = "abcd1234efgh"\n')
    run()
    assert "evals/made_up_helper.py:5 contains a suspected secret" in refused(capsys)
    bundle("--allow-suspected-secret", "evals/made_up_helper.py")


def test_a_file_for_secrets_is_left_out_and_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "evals" / ".env").write_text("OPENAI_API_KEY=abc")
    (project / "evals" / "made_up_helper.py").write_text(f'{HELPER}\nENV = ".env"\n')
    run()
    path = bundle()
    assert not any(".env" in name for name in names(path))
    assert "evals/.env (a file for secrets)" in capsys.readouterr().out


def test_failed_samples_are_bundled_and_imported(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks = HELPER.replace("return", "assert sample.id != 'q1'\n    return")
    (project / "evals" / "made_up_helper.py").write_text(breaks)
    assert main(["eval", "evals/made_up_evaluation.py", "--quiet"]) == 3
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    assert main(["runs", "import", str(path)]) == 0
    with Store.open(create=False) as store:
        (imported,) = store.runs()
    assert (imported.totals.recorded, imported.totals.failed) == (5, 1)
    assert imported.id.startswith("sums-")
    assert "-bundle-" in imported.id
    assert main(["runs", "import", str(path)]) == 0
    with Store.open(create=False) as store:
        assert len(store.runs()) == 1


def test_rows_that_bring_their_answers_keep_them(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an endpoint nothing is rolled out: the trajectories are the dataset."""
    run()
    bundle(name="evals/answered.tar.gz")
    text = FILE.replace('endpoint=Endpoint(provider="mock", model="echo"), ', "")
    text = text.replace("rows.jsonl", "answered.tar.gz")
    (project / "evals" / "made_up_evaluation.py").write_text(text)
    run()
    path = bundle().absolute()
    assert all("trajectory" in each for each in lines(path, "dataset.jsonl"))
    assert not any("answered" in name for name in names(path))
    monkeypatch.chdir(elsewhere)
    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0
    with Store.open(create=False) as store:
        new, old = store.runs()
    assert new.totals.mean == old.totals.mean == 0.5


def test_a_dataset_that_the_code_opens_by_itself_is_bundled(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = FILE.replace('"rows.jsonl"', 'load_samples(Path(__file__).parent / "rows.jsonl", 2)')
    text = text.replace("import made_up", "from assay.datasets import load_samples\nimport made_up")
    (project / "evals" / "made_up_evaluation.py").write_text(text)
    run()
    path = bundle().absolute()
    assert "code/evals/rows.jsonl" in names(path)
    monkeypatch.chdir(elsewhere)
    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0
    with Store.open(create=False) as store:
        assert [row.totals.recorded for row in store.runs()] == [2, 2]


def test_a_run_of_a_bundle_is_not_bundled_without_its_code(
    project: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run()
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0
    assert "it was imported from a bundle: share that bundle" in refused(capsys)


def test_a_bundle_that_could_not_be_read_again_is_not_written(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    monkeypatch.setattr("assay.datasets.bundle_archive.MAX_MEMBERS", 2)
    assert "more than 2 members" in refused(capsys)
    assert not [name for name in os.listdir(project) if name.endswith(".tar.gz")]


def test_exports_read_a_bundle_as_data(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "evals" / "made_up_helper.py").write_text(f'{HELPER}\nopen("ran", "w").close()\n')
    run()
    bundle()
    (project / "ran").unlink()
    assert main(["export", "trl-sft", "x.tar.gz", "-o", "out.jsonl", "--min-score", "1"]) == 0
    assert len(Path("out.jsonl").read_text().splitlines()) == 3
    assert not (project / "ran").exists()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--trust", "evals/made_up_evaluation.py"], "--trust has no effect without a bundle"),
        ([], "no evaluation is given"),
        (["--bundle", "missing.tar.gz"], "missing.tar.gz does not exist"),
        (["--bundle", "evals/rows.jsonl"], "gzip|refused|tar.gz"),
        (["--bundle", "x.tar.gz", "a.py"], "--bundle and an evaluation file"),
    ],
)
def test_a_wrong_request_is_refused(
    words: list[str], problem: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", *words]) == 2
    assert re.search(problem, capsys.readouterr().err)


def test_an_unfinished_run_is_bundled_with_a_note(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    with Store.open(create=False) as store, store._database.write_transaction() as transaction:
        transaction.execute("UPDATE assay_run SET status = ?", "interrupted")
    bundle()
    assert "rows that were not evaluated are not bundled" in capsys.readouterr().out


def test_json_lists_the_files_and_their_digests(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    capsys.readouterr()
    bundle("--json")
    plain = json.loads(capsys.readouterr().out)
    assert plain["files"].keys() == set(names(Path("x.tar.gz"))) - {"manifest.json"}
    assert plain["runs"][0]["results"] == 6


@pytest.mark.parametrize("case", ["count", "line", "twice"])
def test_results_that_do_not_fit_are_refused_before_one_is_recorded(
    case: str, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    whole = bundle_command.write_run

    def break_run(made: Any, samples: Any, results: TextIO, dataset: TextIO) -> tuple[Any, int]:
        counted, redacted = whole(made, samples, results, dataset)
        if case == "line":
            results.write("{garbled\n")
            return counted, redacted
        if case == "twice":
            results.write('{"id": "q5", "prompt": "5", "rollout_id": "q5#0"}\n')
            return counted.model_copy(update={"results": counted.results + 1}), redacted
        return counted.model_copy(update={"results": counted.results - 1}), redacted

    monkeypatch.setattr(bundle_command, "write_run", break_run)
    bundle()
    capsys.readouterr()
    assert main(["runs", "import", "x.tar.gz", "--store", "other.db"]) == 2
    assert "x.tar.gz" in capsys.readouterr().err
    with Store.open("other.db", create=False) as store:
        assert store.runs() == []


def test_runs_that_share_a_sample_id_are_imported(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    whole = open_bundle_input

    def double_runs(args: Any, stack: Any) -> Any:
        given: Any = whole(args, stack)
        runs = [(each, list(samples)[:1]) for each, samples in given.runs]
        return replace(given, runs=runs * 2)

    monkeypatch.setattr(bundle_command, "open_bundle_input", double_runs)
    bundle()

    assert main(["runs", "import", "x.tar.gz", "--store", "other.db"]) == 0
    with Store.open("other.db", create=False) as store:
        assert [each.totals.recorded for each in store.runs()] == [1, 1]
