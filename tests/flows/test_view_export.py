"""`assay view --export`: one file, written once, refused before anything is read."""

from pathlib import Path

import pytest

from assay.cli import main
from assay.store import Store
from recorded_pages import RecordedPages


def export(store: Store, *words: str) -> int:
    return main(["view", "--store", store.where, *words])


def test_runs_are_written_as_one_file(
    page_store: Store, pages: RecordedPages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"

    status = export(page_store, "--export", pages.baseline, pages.changed, "-o", str(target))

    printed = capsys.readouterr()
    assert (status, printed.out) == (0, f"{target}\n")
    assert "MB; open it in a browser" in printed.err
    assert "Content-Security-Policy" in target.read_text()


def test_an_existing_file_needs_force(
    page_store: Store, pages: RecordedPages, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    target.write_text("mine")

    refused = export(page_store, "--export", pages.repeats, "-o", str(target))

    assert (refused, target.read_text()) == (2, "mine")
    assert "pass --force to overwrite it" in capsys.readouterr().err
    assert export(page_store, "--export", pages.repeats, "-o", str(target), "--force") == 0
    assert target.read_text() != "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--export", "sums-1"], "--export and -o need each other"),
        (["-o", "report.html"], "--export and -o need each other"),
        (["--export", "nothing", "-o", "report.html"], "run 'nothing' does not exist"),
        (["--project", "nowhere"], "--project nowhere is not a folder"),
    ],
)
def test_a_wrong_request_is_explained(
    words: list[str],
    message: str,
    page_store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)

    assert export(page_store, *words) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
