"""What is told of an ingestion."""

import json

from assay.cli.ingest_report import IngestReport
from assay.errors import BadRow, StoreError, WireError
from assay.sessions import read_opencode


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

    told = json.loads(made.json())

    assert told["skipped"] == [{"session": "ses_x", "problem": "here: odd"}]
    assert (told["written"], told["file"], told["format"]) == (2, "s.jsonl", "eval")


def test_a_store_that_fails_is_not_about_a_sample() -> None:
    assert account().is_about_sample(WireError("odd"))
    assert not account().is_about_sample(StoreError("full"))


def test_unknown_kinds_are_counted_most_frequent_first() -> None:
    made = account()
    made.stream.reading.unknown_kinds.update(mirror=1, hologram=11)

    assert "unknown       12 records of 2 unknown kinds: hologram (11), mirror (1)" in made.lines()
    told = json.loads(made.json())
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

    assert json.loads(made.json())["untested_versions"] == {"9.9.9": 2}
