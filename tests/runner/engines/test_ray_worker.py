"""A Ray worker: its folder, and which versions it compares."""

from pathlib import Path

import pytest

import assay
from assay.runner.engines import ray_worker
from assay.runner.engines.ray_worker import ASSAY_FILES, PYTHON, find_versions, make_code_folder


def test_a_folder_is_removed_once_its_worker_has_ended(tmp_path: Path) -> None:
    ended, of_ended = make_code_folder(tmp_path)
    alive, of_alive = make_code_folder(tmp_path)
    (ended / "module.py").write_text("")
    unknown = tmp_path / "assay-ray-unlocked"
    unknown.mkdir()
    of_ended.close()

    last, of_last = make_code_folder(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([alive, unknown, last])
    of_alive.close()
    of_last.close()


def test_every_file_of_assay_counts_as_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Path(ray_worker.__file__).relative_to(Path(assay.__file__).parent)
    monkeypatch.setattr(ray_worker, "__file__", str(tmp_path / own))
    before = find_versions([ASSAY_FILES])

    (tmp_path / "stats.py").write_text("changed = True")

    assert find_versions([ASSAY_FILES]) != before


def test_a_package_that_is_missing_has_no_version() -> None:
    assert find_versions(["no-such-package", PYTHON])["no-such-package"] is None
