"""Files that appear whole or not at all."""

import json
from pathlib import Path

import pytest

from assay.errors import ConfigError, WireError
from assay.export.output_files import OutputFiles


def test_nothing_is_there_before_the_end_and_no_trace_after_it(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"

    with OutputFiles([target], columns=None, force=False) as files:
        files.write(target, {"text": "é"})
        files.add_text(tmp_path / "b.json", "{}")
        assert not target.exists()
        files.commit()

    assert json.loads(target.read_text(encoding="utf-8")) == {"text": "é"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "b.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interruption_leaves_nothing_and_keeps_what_was_there(
    tmp_path: Path, error: type[BaseException]
) -> None:
    target = tmp_path / "a.jsonl"
    target.write_text("old\n")

    def interrupted() -> None:
        with OutputFiles([target], columns=None, force=True) as files:
            files.write(target, {"a": 1})
            raise error

    with pytest.raises(error):
        interrupted()

    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "a.jsonl"
    target.write_text("old\n")

    with pytest.raises(ConfigError, match="the file already exists"):
        OutputFiles([target], columns=None, force=False)


@pytest.mark.parametrize(
    ("name", "problem"),
    [(".", "is a folder"), ("no/a.jsonl", "the folder does not exist")],
)
def test_what_cannot_be_a_file_is_refused(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        OutputFiles([tmp_path / name], columns=None, force=True)


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object()])
def test_a_row_that_is_no_json_is_refused_and_the_file_goes_on(
    tmp_path: Path, value: object
) -> None:
    target = tmp_path / "a.jsonl"

    with OutputFiles([target], columns=None, force=False) as files:
        with pytest.raises(WireError, match="the row cannot be written as JSON"):
            files.write(target, {"a": value})
        files.write(target, {"a": 1})
        files.commit()

    assert target.read_text() == '{"a":1}\n'
