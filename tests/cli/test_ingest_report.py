"""What is told of an ingestion."""

import json

import pytest

from assay.cli.ingest_report import IngestReport, format_sample_line
from assay.errors import BadRow
from assay.sessions import read_opencode
from assay.types import Message
from make import asked, said, sample


def account() -> IngestReport:
    made = IngestReport(read_opencode("data"), output="s.jsonl", format="eval")
    made.stream.reading.read = 3
    return made


def test_a_whole_ingestion_is_told_in_three_lines() -> None:
    assert account().lines() == [
        "source        data",
        "sessions      3 written",
        "file          s.jsonl (eval)",
    ]
    assert account().complete


def test_everything_that_was_left_out_is_counted() -> None:
    made = account()
    reading = made.stream.reading
    reading.not_chosen, reading.empty, reading.dropped = 1, 2, 3
    reading.missing = [f"ses_{number}" for number in range(22)]
    reading.notes = ["a tree was not read"]
    made.unplaced = 4
    made.skip("ses_x", BadRow("odd"))

    text = "\n".join(made.lines())

    assert "2 written" in text
    assert "left out      1 not selected, 2 empty, 3 of subagents" in text
    assert "skipped       1 that cannot be read or written" in text
    assert "missing       ses_0\n" in text
    assert "and 2 more" in text
    assert "eval cannot represent 4 values" in text
    assert "note          a tree was not read" in text
    assert not made.complete


def test_the_same_is_told_as_json() -> None:
    made = account()
    made.skip("ses_x", BadRow("odd", where="here"))

    told = made.plain()

    assert told["skipped"] == [{"session": "ses_x", "problem": "here: odd"}]
    assert (told["written"], told["file"], told["format"]) == (2, "s.jsonl", "eval")


def test_unknown_kinds_are_counted_most_frequent_first() -> None:
    made = account()
    made.stream.reading.unknown_kinds.update(mirror=1, hologram=11)

    assert "unknown       12 records of 2 unknown kinds: hologram (11), mirror (1)" in made.lines()
    told = made.plain()
    assert (told["unknown_records"], list(told["unknown_kinds"])) == (12, ["hologram", "mirror"])
    assert made.complete


def test_a_long_list_of_unknown_kinds_is_cut_with_a_count() -> None:
    made = account()
    made.stream.reading.unknown_kinds.update({f"kind{n:02}": 1 for n in range(11)})

    (line,) = [line for line in made.lines() if line.startswith("unknown")]

    assert line.startswith("unknown       11 records of 11 unknown kinds: kind00 (1), ")
    assert line.endswith("kind09 (1), and 1 more kind")


def test_untested_versions_are_in_the_json() -> None:
    made = account()
    made.stream.reading.untested_versions.update({"9.9.9": 2})

    assert made.plain()["untested_versions"] == {"9.9.9": 2}


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
