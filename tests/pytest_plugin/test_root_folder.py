"""The root folder of a session, with files of assay's options elsewhere."""

from pathlib import Path

import pytest

from evaluation_sessions import call_pytest, write_tests

EVALUATION = """
    @evaluation_test(rows(**dict.fromkeys("abcdefghij", "yes")))
    def test_kept(reply):
        return float(os.environ.get("SCORE", "1"))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    write_tests(folder, EVALUATION)
    return folder


def test_a_baseline_outside_the_project_finds_a_regression(project: Path, tmp_path: Path) -> None:
    baseline = str(tmp_path / "elsewhere" / "base.json")
    call_pytest(project, "--assay-baseline", baseline, "--assay-update-baseline")

    same = call_pytest(project, "--assay-baseline", baseline)
    fallen = call_pytest(project, "--assay-baseline", baseline, env={"SCORE": "0"})

    assert (same.status, fallen.status) == (0, 1), same.output
    assert fallen.outcomes == {"test_kept": "failure"}
    assert list(fallen.tests) == ["test_kept"]
    assert not (tmp_path / ".assay").exists()


def test_settings_that_pytest_did_not_read_are_refused(project: Path, tmp_path: Path) -> None:
    (project / "pytest.ini").write_text("[pytest]\n")
    baseline = str(tmp_path / "elsewhere" / "base.json")
    call_pytest(project, f"--assay-baseline={baseline}", "--assay-update-baseline")

    apart = call_pytest(project, "--assay-baseline", baseline)
    joined = call_pytest(project, f"--assay-baseline={baseline}", env={"SCORE": "0"})

    assert apart.status == 4
    assert "write --assay-baseline=PATH, or pass --rootdir" in apart.output
    assert joined.status == 1


def test_a_test_below_another_root_folder_does_not_pass_as_a_new_one(
    project: Path, tmp_path: Path
) -> None:
    baseline = f"--assay-baseline={tmp_path / 'base.json'}"
    call_pytest(project, baseline, "--assay-update-baseline")

    session = call_pytest(project, baseline, f"--rootdir={tmp_path}", env={"SCORE": "0"})

    assert session.status == 1
    told = " ".join(session.output.split())
    assert "which has test_evals.py::test_kept: pytest had another root folder" in told
