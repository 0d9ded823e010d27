"""The table of formats, and the endings of their files."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.export.format_table import FORMATS, format_named


@pytest.mark.parametrize(
    ("form", "ending"),
    [("trl-sft", ".jsonl"), ("verl", ".parquet"), ("skyrl", ".jsonl"), ("skyrl", ".parquet")],
)
def test_a_fitting_ending_is_taken(form: str, ending: str) -> None:
    format_named(form).check_target(Path(f"x{ending}"), form)


@pytest.mark.parametrize(
    ("form", "name"), [("trl-sft", "x.parquet"), ("verl", "x.jsonl"), ("trl-sft", "x")]
)
def test_an_ending_that_says_something_else_is_refused(form: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{form} cannot be written to a file"):
        format_named(form).check_target(Path(name), form)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="trl-sft, trl-sft-messages"):
        format_named("yaml")


def test_every_format_says_what_it_is_for() -> None:
    assert all(form.about for form in FORMATS.values())
