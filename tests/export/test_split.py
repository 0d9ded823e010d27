"""Splits: the same tomorrow, about the asked shares, and never through a group."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.export.split import Split, Splitter
from assay.types import Sample


def test_shares_are_met_about_and_the_id_alone_decides() -> None:
    split = Split.parse("0.9")

    parts = [split.part_of(f"sample-{number}") for number in range(4000)]

    assert 3500 < parts.count("train") < 3700
    assert parts == [Split.parse("0.9/0.1").part_of(f"sample-{n}") for n in range(4000)]


def test_a_part_of_an_id_is_pinned() -> None:
    split = Split.parse("0.8/0.1/0.1")

    parts = {name: split.part_of(name) for name in ("9", "10", "11")}

    assert parts == {"9": "train", "10": "test", "11": "validation"}


def test_a_smaller_share_takes_from_the_larger_and_gives_nothing_back() -> None:
    small, large = Split.parse("0.5"), Split.parse("0.9")
    names = [str(number) for number in range(500)]

    in_small = {name for name in names if small.part_of(name) == "train"}

    assert in_small < {name for name in names if large.part_of(name) == "train"}


def test_the_same_question_under_another_id_goes_to_the_same_part() -> None:
    splitter = Splitter(Split.parse("0.5"))

    parts = {splitter.part_of(Sample(id=str(number), prompt="the same")) for number in range(50)}
    apart = {splitter.part_of(Sample(id=str(number))) for number in range(50)}

    assert len(parts) == 1
    assert apart == {"train", "test"}


def test_files_are_named_after_their_part() -> None:
    files = Split.parse("0.8/0.1/0.1").files(Path("x/data.jsonl"))

    assert [str(path) for path in files.values()] == [
        "x/data.train.jsonl",
        "x/data.validation.jsonl",
        "x/data.test.jsonl",
    ]


@pytest.mark.parametrize(
    "text", ["", "x", "0", "1", "1.5", "-0.1", "0.5/0.6", "0.25/0.25/0.25/0.25", "nan", "0.9/"]
)
def test_what_is_no_split_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a valid split"):
        Split.parse(text)
