"""`assay eval --bundle` from the inside: what is asked, repeated, replaced and refused."""

import io
import sys
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.cli import bundle as bundle_command
from assay.cli import eval as eval_command
from assay.cli import main
from assay.cli.bundle_input import open_bundle_input
from assay.cli.eval_bundle import REFUSED_OPTIONS
from assay.store import Store
from bundled_projects import HELPER, bundle, forget_modules, names, run


class Terminal(io.StringIO):
    """Standard input of somebody at a keyboard."""

    def isatty(self) -> bool:
        return True


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
