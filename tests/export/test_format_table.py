"""The table of formats, and the endings of their files."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.export import Selection, export_samples
from assay.export.format_table import FORMATS, format_named
from make import asked, sample
from plugin_package import install_package


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


PLUGINS = """
from assay.export import Format
from assay.formats import Converted

ids = Format("samples", "ids only", lambda sample: Converted({"id": sample.id}))
wrong = Format("rows", "no such content", lambda sample: Converted({}))
number = 4
"""


@pytest.fixture
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        f"export_formats.{name}": f"acme_assay:{name}" for name in ("ids", "wrong", "number")
    }
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
    assert format_named("atif") is FORMATS["atif"]


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("number", "the format is of type `int`, not a Format"),
        ("wrong", "the format takes 'rows', not one of answers, prompts"),
        ("idz", "unknown format 'idz'"),
    ],
)
def test_a_plugin_that_is_not_a_format_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        format_named(name)
