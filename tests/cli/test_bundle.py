"""`assay bundle` and `assay eval --bundle` from the inside. Processes are in `tests/flows/`."""

import io
import json
import os
import re
import shlex
import sys
import tarfile
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

import pytest

from assay.cli import bundle as bundle_command
from assay.cli import eval as eval_command
from assay.cli import main
from assay.cli.bundle_input import open_bundle_input
from assay.cli.eval_bundle import REFUSED_OPTIONS
from assay.datasets.bundle_file import Bundle
from assay.store import Store

FILE = """
from pathlib import Path

from assay.runner import EvalConfig
from assay.types import Endpoint

import made_up_helper

PROMPT = (Path(__file__).parent / "prompts" / "system.txt").read_text()

def score(sample):
    return made_up_helper.is_right(sample)

config = EvalConfig(endpoint=Endpoint(provider="mock", model="echo"), score_fn=score, name="sums")
dataset = "rows.jsonl"
"""
HELPER = """
def is_right(sample):
    return sample.response == sample.ground_truth
"""
ROWS = [{"id": f"q{n}", "question": str(n), "answer": str(n % 3)} for n in range(6)]
MODULES = ("made_up_evaluation", "made_up_helper")


def forget_modules() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with an evaluation in `evals/`."""
    for variable in ("ASSAY_STORE", "ASSAY_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    evals = tmp_path / "project" / "evals"
    (evals / "prompts").mkdir(parents=True)
    (evals / "made_up_evaluation.py").write_text(FILE)
    (evals / "made_up_helper.py").write_text(HELPER)
    (evals / "prompts" / "system.txt").write_text("Answer.")
    (evals / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    monkeypatch.chdir(evals.parent)
    yield evals.parent
    forget_modules()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


class Terminal(io.StringIO):
    """Standard input of somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


def run(*options: str) -> None:
    assert main(["eval", "evals/made_up_evaluation.py", "--quiet", *options]) == 0
    forget_modules()


def bundle(*options: str, name: str = "x.tar.gz") -> Path:
    assert main(["bundle", "latest", "-o", name, *options]) == 0
    return Path(name)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["bundle", "latest", "-o", "x.tar.gz", *words]) == 2
    assert not Path("x.tar.gz").exists()
    return capsys.readouterr().err


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()


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


def test_code_from_outside_the_project_is_imported_again(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = project.parent / "shared"
    shared.mkdir()
    (project / "evals" / "made_up_helper.py").rename(shared / "made_up_helper.py")
    monkeypatch.syspath_prepend(str(shared))
    run()
    path = bundle().absolute()
    assert "code/external/0/made_up_helper.py" in names(path)
    sys.path.remove(str(shared))
    monkeypatch.chdir(elsewhere)
    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0


def test_a_bundle_that_the_user_declines_is_listed_and_nothing_runs(
    project: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (project / "evals" / "made_up_helper.py").write_text(f'{HELPER}\nopen("ran", "w").close()\n')
    run()
    path = bundle().absolute()
    (project / "ran").unlink()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()

    monkeypatch.setattr("sys.stdin", Terminal("no\n"))

    assert main(["eval", "--bundle", str(path), "--max-samples", "2"]) == 2

    printed = capsys.readouterr()
    assert "evals/made_up_helper.py" in printed.err
    assert "6 dataset rows" in printed.err
    assert "Run it? [y/N] Nothing was run." in printed.err
    assert not list(elsewhere.iterdir())
    assert not (project / "ran").exists()


def test_a_bundle_runs_when_the_user_agrees(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))

    assert main(["eval", "--bundle", str(path), "--quiet"]) == 0

    assert (elsewhere / ".assay" / "assay.db").exists()


def test_a_script_that_names_a_bundle_runs_it(
    project: Path,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    capsys.readouterr()

    assert main(["eval", "--bundle", str(path)]) == 0

    assert "The code of this bundle runs on this machine" in capsys.readouterr().err


def test_a_trusted_bundle_is_repeated_beside_its_results(
    project: Path,
    elsewhere: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("--max-samples", "4", "--repeats", "2", "--name", "named", "--seed", "3")
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    capsys.readouterr()

    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0

    with Store.open(create=False) as store:
        new, old = store.runs()
    assert f"assay compare {old.id} {new.id}" in capsys.readouterr().out
    assert old.totals.mean == new.totals.mean
    assert new.totals.recorded == old.totals.recorded == 8
    assert new.spec.name == "named"
    assert new.spec.repeats == 2
    assert new.spec.config_fingerprint == old.spec.config_fingerprint
    assert main(["compare", old.id, new.id]) == 0
    # The bundle has the rows that were used, which is another file than the whole dataset.
    assert "differ in     dataset\n" in capsys.readouterr().out

    # The bundled results are imported once, and a run of a bundle is resumed.
    forget_modules()
    assert main(["eval", "--bundle", str(path), "--trust", "--quiet", "--resume", new.id]) == 0
    with Store.open(create=False) as store:
        assert len(store.runs()) == 2


def test_options_take_the_place_of_those_of_the_bundled_run(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("--repeats", "2")
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)
    words = ["--bundle", str(path), "--trust", "--quiet", "--repeats", "1", "--max-samples", "3"]
    assert main(["eval", *words]) == 0
    with Store.open(create=False) as store:
        new, _ = store.runs()
    assert new.spec.repeats == 1
    assert new.totals.recorded == 3


def test_each_option_that_defines_a_run_is_repeated(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("--max-turns", "2", "--timeout-s", "9", "--seed", "4")
    path = bundle().absolute()
    monkeypatch.chdir(elsewhere)

    assert main(["eval", "--bundle", str(path), "--trust", "--quiet"]) == 0

    with Store.open(create=False) as store:
        new, old = store.runs()
    assert new.spec.config_fingerprint == old.spec.config_fingerprint


REFUSED = {
    **{f"--{name}": "x" for name in ("agent", "prompt", "scorer", "setup", "check", "judge")},
    **{"--workspace": ".", "--dataset": "d.csv", "--split": "test", "--engine": "ray"},
    **{"--ray-address": "127.0.0.1:1", "--ray-env": "NAME"},
}
# Each of the others has an effect on the run, or is about the command.
HONOURED = set(
    "model key_env allow_plain_http max_samples repeats max_turns concurrency timeout_s seed name "
    "fail_on_error max_cost_usd max_run_turns max_run_tokens max_run_seconds max_run_cost_usd "
    "session save_sessions replay replay_missing resume allow_changed_dataset take_over rescore "
    "grace_s store json quiet bundle trust list file".split()
)
# `check_process_options` refuses them.
OF_PROCESSES = {"workers", "shard", "run"}


@pytest.mark.parametrize(("option", "value"), REFUSED.items(), ids=REFUSED)
def test_an_option_that_a_bundle_cannot_follow_is_refused_before_the_question(
    option: str,
    value: str,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run()
    path = bundle()
    monkeypatch.setattr("sys.stdin", None)

    assert main(["eval", "--bundle", str(path), option, value]) == 2

    assert f"{option} has no effect on a bundle, which repeats" in capsys.readouterr().err


def test_every_option_of_an_evaluation_is_followed_or_refused_by_a_bundle() -> None:
    parser = ArgumentParser()
    eval_command.configure(parser)
    declared = {action.dest for action in parser._actions} - {"help"}

    refused = {option.removeprefix("--").replace("-", "_") for option in REFUSED}

    assert set(REFUSED_OPTIONS) == refused
    assert declared == refused | HONOURED | OF_PROCESSES


def test_a_recording_is_found_from_the_folder_of_the_command(
    project: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run()
    path = bundle().absolute()
    calls = elsewhere / "calls.jsonl"
    assert main(["runs", "record", "latest", "-o", str(calls)]) == 0
    monkeypatch.chdir(elsewhere)

    words = ["--bundle", str(path), "--trust", "--quiet", "--replay", "calls.jsonl"]
    assert main(["eval", *words]) == 0

    with Store.open(create=False) as store:
        new, _ = store.runs()
    assert new.totals.recorded == 6
    assert new.spec.config["replay"]


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


@pytest.mark.parametrize("options", [{"model": 5}, {"repeats": "3"}, {"seed": True}])
def test_an_option_of_the_wrong_type_is_refused(
    options: dict[str, Any],
    project: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run()
    whole = open_bundle_input

    def change_options(args: Any, stack: Any) -> Any:
        given: Any = whole(args, stack)
        code = replace(given.code, code=given.code.code.model_copy(update={"options": options}))
        return replace(given, code=code)

    monkeypatch.setattr(bundle_command, "open_bundle_input", change_options)
    bundle()

    assert main(["eval", "--bundle", "x.tar.gz"]) == 2
    assert f"sets the option `{next(iter(options))}` to" in capsys.readouterr().err


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
