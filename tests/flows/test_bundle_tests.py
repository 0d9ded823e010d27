"""A pytest session as a bundle: its evaluations, repeated in another folder."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli import main
from assay.datasets.bundle_file import Bundle
from assay.store import Store

TESTS = """
from assay import evaluation_test
from made_up_grader import is_right


def test_that_is_no_evaluation():
    open("ran", "w").close()


@evaluation_test("checks/rows.jsonl", endpoint="mock:echo", max_samples=4)
def test_sums(response, ground_truth):
    return is_right(response, ground_truth)


@evaluation_test([{"question": "1"}], endpoints=["mock:echo", "mock:echo"], groupwise=True)
def test_group(response):
    return [1.0 for _ in response]
"""
ROWS = [{"id": f"q{n}", "question": str(n), "answer": str(n % 3)} for n in range(6)]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    hidden = ("ASSAY_STORE", "ASSAY_HOME", "PYTHONPATH", "PYTEST_ADDOPTS")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return subprocess.run(
        [sys.executable, "-m", *words],
        cwd=folder,
        env={**kept, "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose tests ran once."""
    root = tmp_path_factory.mktemp("bundled") / "project"
    checks = root / "checks"
    checks.mkdir(parents=True)
    (checks / "test_made_up.py").write_text(TESTS)
    (checks / "conftest.py").write_text("")
    (checks / "made_up_grader.py").write_text("def is_right(a, b):\n    return a == b\n")
    (checks / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (root / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    done = run(root, "pytest", "-q", "-p", "no:cacheprovider")
    assert done.returncode == 0, done.stdout
    (root / "ran").unlink()
    return root


@pytest.fixture
def project(session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, as the current folder."""
    for variable in ("ASSAY_STORE", "ASSAY_HOME"):
        monkeypatch.delenv(variable, raising=False)
    root = tmp_path / "project"
    shutil.copytree(session, root)
    monkeypatch.chdir(root)
    return root


def bundle(*options: str) -> int:
    return main(["bundle", ".assay/summary.json", "-o", "x.tar.gz", *options])


def test_the_tests_of_a_bundle_run_again_on_its_rows(project: Path, tmp_path: Path) -> None:
    assert bundle() == 0
    manifest = Bundle.open(Path("x.tar.gz")).manifest
    assert sorted(name for name in manifest.files if name.startswith("code/")) == [
        "code/checks/conftest.py",
        "code/checks/made_up_grader.py",
        "code/checks/test_made_up.py",
        "code/pytest.ini",
    ]
    assert [(each.results, each.rows) for each in manifest.runs] == [(1, 1), (1, 1), (4, 4)]
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.rename("x.tar.gz", elsewhere / "x.tar.gz")

    done = run(elsewhere, "assay", "eval", "--bundle", "x.tar.gz", "--trust", "--json")

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [each["test"] for each in found["tests"]] == [each.test for each in manifest.runs]
    with Store.open(elsewhere / ".assay" / "assay.db", create=False) as store:
        for each in found["tests"]:
            old, new = store.run(each["bundled"]), store.run(each["run"])
            assert old.totals.mean == new.totals.mean
            assert [row.sample_id for row in old.results()] == [
                row.sample_id for row in new.results()
            ]
    assert sorted(os.listdir(elsewhere)) == [".assay", "x.tar.gz"]


def test_no_test_runs_when_the_user_declines(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bundle() == 0
    answer = io.StringIO("n\n")
    monkeypatch.setattr(answer, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", answer)
    assert main(["eval", "--bundle", "x.tar.gz"]) == 2
    assert "checks/test_made_up.py::test_sums" in capsys.readouterr().err
    assert not (project / "ran").exists()


def test_samples_of_a_session_are_exported_from_its_bundle(project: Path) -> None:
    assert bundle("--no-code") == 0
    assert main(["export", "trl-sft", "x.tar.gz", "-o", "out.jsonl"]) == 0
    assert len(Path("out.jsonl").read_text().splitlines()) == 6


@pytest.mark.parametrize("file", ["checks/test_made_up.py", "checks/made_up_grader.py"])
def test_tests_that_changed_since_the_session_are_refused(
    file: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (project / file).open("a") as opened:
        opened.write("\n# changed\n")
    assert bundle() == 2
    assert f"changed since the run was made: {file}" in capsys.readouterr().err
    assert bundle("--allow-changed-code") == 0


def test_tests_that_are_gone_are_missed(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "checks")
    assert bundle() == 2
    assert "the test files of .assay/summary.json are neither" in capsys.readouterr().err


def test_options_of_runs_are_refused_for_tests(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bundle("--code", "x.py") == 2
    assert "--code applies to a run, not to a summary" in capsys.readouterr().err
    assert bundle() == 0
    refused = (
        *(["--repeats", "2"], ["--max-turns", "2"], ["--max-run-turns", "2"], ["--grace-s", "1"]),
        *(["--workspace", "."], ["--dataset", "d.csv"], ["--judge", "mock:echo"], ["--seed", "0"]),
        *(["--engine", "ray"], ["--ray-env", "NAME"], ["--replay-missing", "live"], ["--resume"]),
    )
    for words in refused:
        assert main(["eval", "--bundle", "x.tar.gz", *words]) == 2
        told = capsys.readouterr().err
        assert f"{words[0]} has no effect on the tests of a bundle" in told
        assert "runs on this machine" not in told
    assert main(["eval", "--bundle", "x.tar.gz", "--trust", "--replay", "run-1"]) == 2
    assert "--replay run-1 is not a file" in capsys.readouterr().err


def test_a_file_that_is_no_summary_is_refused(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "other.json").write_text("{}")
    for name in ("other.json", "missing.json", "checks/rows.jsonl"):
        assert main(["bundle", name, "-o", "x.tar.gz"]) == 2
        assert f"{name} is not the summary of a pytest session" in capsys.readouterr().err


DAMAGED: dict[str, tuple[dict[str, object], str]] = {
    "tests in words": ({"tests": "x"}, "tests Input should be a valid array"),
    "a test without a file": ({"tests": [{"test": "a"}]}, "tests.0.file Field required"),
    "a time that acts on terminals": ({"created": "\x1b[2J"}, "is damaged"),
    "no tests": ({"tests": []}, "at least 1 item"),
    "a name that no file has": (
        {"tests": [{"test": "a", "file": "checks/test_made_up.py", "dataset": "a\0"}]},
        "null byte",
    ),
    "samples of no test": (
        {"tests": [{"test": "a", "file": "checks/test_made_up.py"}]},
        "belongs to no test of the summary",
    ),
}


@pytest.mark.parametrize(("change", "problem"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_summary_is_refused(
    change: dict[str, object], problem: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / ".assay" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))

    assert bundle() == 2
    told = capsys.readouterr().err
    assert problem in told
    assert "Traceback" not in told
    assert not (project / "x.tar.gz").exists()


def test_rows_that_are_not_there_are_refused(session: Path) -> None:
    done = run(session, "pytest", "--assay-rows", "missing.jsonl")
    assert done.returncode == 4
    assert "missing.jsonl does not exist" in done.stderr
