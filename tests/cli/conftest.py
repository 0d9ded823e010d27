"""The project whose run is bundled, and a folder beside it."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bundled_projects import forget_modules, write_project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with an evaluation in `evals/`."""
    for variable in ("ASSAY_STORE", "ASSAY_HOME", "OPENAI_API_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = tmp_path / "project"
    write_project(folder)
    monkeypatch.chdir(folder)
    yield folder
    forget_modules()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder
