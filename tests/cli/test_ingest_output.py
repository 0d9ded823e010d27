"""Lines of JSON: one for each sample, and a file that is whole or not there."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli.ingest_output import format_sample_line, write_file
from assay.errors import ConfigError
from assay.types import Message, Sample
from make import asked, said, sample

WHOLE = sample(asked("a"), said("b"), id="s")


@pytest.mark.parametrize("form", ["sample", "eval", "atif"])
def test_a_line_is_one_json_object(form: str) -> None:
    line, lost = format_sample_line(WHOLE, form)

    assert "\n" not in line
    assert isinstance(json.loads(line), dict)
    assert lost == 0


def test_what_a_format_has_no_place_for_is_counted() -> None:
    thinking = sample(Message(role="assistant", content="a", reasoning="r"))

    assert format_sample_line(thinking, "eval")[1] == 1
    assert format_sample_line(thinking, "sample")[1] == 0


def test_samples_without_a_line_are_left_out(tmp_path: Path) -> None:
    lines = iter([None, "{}"])

    write_file(tmp_path / "a.jsonl", iter([WHOLE, WHOLE]), lambda _: next(lines))

    assert (tmp_path / "a.jsonl").read_text() == "{}\n"


def test_an_interrupted_file_is_not_left_behind(tmp_path: Path) -> None:
    def interrupted() -> Iterator[Sample]:
        yield WHOLE
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(tmp_path / "a.jsonl", interrupted(), lambda _: "{}")

    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"a\.jsonl: the file cannot be written"):
        write_file(tmp_path / "none" / "a.jsonl", iter([]), lambda _: "")
