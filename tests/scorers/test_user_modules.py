"""Where modules of the user's own are imported from."""

import sys
from pathlib import Path

import pytest

from assay.scorers.user_modules import build_import_path, is_installed


@pytest.fixture(autouse=True)
def _path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["/lib/python", "/lib/site-packages", "/project"])


def test_folders_are_behind_the_standard_library_and_before_what_is_installed() -> None:
    assert build_import_path([Path("/mine")]) == [
        "/lib/python",
        "/mine",
        "/lib/site-packages",
        "/project",
    ]


def test_a_folder_is_there_once() -> None:
    assert build_import_path(["/project", "/project"]) == [
        "/lib/python",
        "/project",
        "/lib/site-packages",
    ]


def test_a_folder_that_comes_earlier_already_stays_there() -> None:
    assert build_import_path(["/lib/python"]) == sys.path


@pytest.mark.parametrize(
    ("path", "known"), [("/v/lib/site-packages/x.py", True), ("/my/site/packages", False)]
)
def test_what_is_installed_is_told_by_its_folder(path: str, known: bool) -> None:
    assert is_installed(path) is known
