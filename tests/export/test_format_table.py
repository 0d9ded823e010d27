"""The table of formats, and the endings of their files."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.export import Format, Selection, export_samples
from assay.export.format_table import FORMATS, find_format
from assay.formats import Converted
from make import asked, sample
from plugin_package import install_package


@pytest.mark.parametrize(
    ("form", "ending"),
    [("trl-sft", ".jsonl"), ("verl", ".parquet"), ("skyrl", ".jsonl"), ("skyrl", ".parquet")],
)
def test_a_fitting_ending_is_taken(form: str, ending: str) -> None:
    find_format(form).check_target(Path(f"x{ending}"), form)


@pytest.mark.parametrize(
    ("form", "name"), [("trl-sft", "x.parquet"), ("verl", "x.jsonl"), ("trl-sft", "x")]
)
def test_an_ending_that_says_something_else_is_refused(form: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{form} cannot be written to a file"):
        find_format(form).check_target(Path(name), form)


def test_an_unknown_format_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="trl-sft, trl-sft-messages"):
        find_format("yaml")


def test_every_format_says_what_it_is_for() -> None:
    assert all(form.about for form in FORMATS.values())


PLUGINS = """
from assay.export import Format
from assay.formats import Converted

ids = Format("samples", "ids only", lambda sample: Converted({"id": sample.id}))
number = 4
"""


@pytest.fixture
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {f"export_formats.{name}": f"acme_assay:{name}" for name in ("ids", "number")}
    shadow = {"export_formats.atif": "acme_assay:ids"}
    install_package(tmp_path, monkeypatch, {**entries, **shadow}, code=PLUGINS)


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_is_a_format_by_its_name(tmp_path: Path) -> None:
    report = export_samples(
        [sample(asked("?"), id="one")],
        tmp_path / "ids.jsonl",
        "ids",
        selection=Selection(valid_only=False),
    )

    assert report.rows == 1
    assert (tmp_path / "ids.jsonl").read_text() == '{"id":"one"}\n'
    assert find_format("atif") is FORMATS["atif"]


def test_a_format_needs_no_name(tmp_path: Path) -> None:
    own = Format("samples", "ids of samples", lambda sample: Converted({"id": sample.id}))
    every = Selection(valid_only=False)

    report = export_samples(
        [sample(asked("?"), id="one")], tmp_path / "ids.jsonl", own, selection=every
    )

    assert (report.format, report.rows) == ("ids of samples", 1)
    assert (tmp_path / "ids.jsonl").read_text() == '{"id":"one"}\n'
    with pytest.raises(ConfigError, match="ids of samples cannot be written"):
        export_samples([], tmp_path / "ids.csv", own)


def test_a_format_of_unknown_rows_is_refused_when_it_is_made() -> None:
    with pytest.raises(ConfigError, match="takes 'rows', not one of answers, prompts"):
        Format("rows", "?", lambda sample: Converted({}))  # type: ignore[arg-type]  # the mistake


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "the format is of type `int`, not a Format"),
        ("idz", "unknown format 'idz'"),
    ],
)
def test_a_plugin_that_is_not_a_format_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        find_format(name)
