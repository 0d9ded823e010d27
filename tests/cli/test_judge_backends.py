"""Who judges: endpoints from words and files, Vertex, and requests that fit neither."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import pytest

from assay.cli import judge_backends
from assay.cli.judge_backends import add_backend_options, build_judge, read_endpoint_option
from assay.errors import ConfigError

MOCK = ("--endpoint", "mock:echo")
VERTEX = ("--backend", "vertex")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without anything, in an environment that names no project."""
    monkeypatch.chdir(tmp_path)
    for name in ("GOOGLE_CLOUD_PROJECT", "GOOGLE_CLOUD_LOCATION"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What Vertex's judge is made with; none is made."""
    made: dict[str, Any] = {}
    monkeypatch.setattr(
        judge_backends, "vertex_judge", lambda rubric, **fields: made.update(fields, rubric=rubric)
    )
    return made


def parsed(*words: str) -> Namespace:
    parser = ArgumentParser()
    add_backend_options(parser)
    return parser.parse_args(["--rubric", "task_success", *words])


def test_a_model_and_its_panel_judge() -> None:
    made = build_judge(parsed(*MOCK, "--panel", "mock:echo", "--votes", "2"))

    assert made.judges == ("mock:echo #1", "mock:echo #2")
    assert made.votes == 2


def test_vertex_is_asked_in_the_project_that_is_named(asked: dict[str, Any]) -> None:
    build_judge(parsed(*VERTEX, "--project", "shop", "--endpoint", "https://vertex.example"))

    assert asked == {
        "rubric": "task_success",
        "project": "shop",
        "location": "us-central1",
        "address": "https://vertex.example",
    }


def test_the_environment_may_name_project_and_location(
    asked: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_CLOUD_PROJECT", "shop")
    monkeypatch.setenv("GOOGLE_CLOUD_LOCATION", "europe-west4")

    build_judge(parsed(*VERTEX))

    assert (asked["project"], asked["location"]) == ("shop", "europe-west4")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ((), "no judge model: pass --endpoint"),
        ((*MOCK, "--project", "shop"), "--project has no effect without Vertex"),
        ((*MOCK, "--location", "global"), "--location has no effect without Vertex"),
        (VERTEX, "no Google Cloud project is set"),
        ((*VERTEX, "--project", "shop", "--votes", "2"), "--votes has no effect with Vertex"),
        (
            (*VERTEX, "--project", "shop", "--panel", "mock:echo"),
            "--panel has no effect with Vertex",
        ),
    ],
)
def test_options_that_do_not_fit_the_backend_are_refused(
    words: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        build_judge(parsed(*words))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[]", "not an endpoint"),
        ('{"provider": "mock"}', "not an endpoint: model"),
        (
            '{"provider": "mock", "model": "echo", "api_key": "k"}',
            "`api_key` is not allowed in the file",
        ),
        (
            '{"provider": "mock", "model": "echo", "temprature": 1}',
            "`temprature` is not allowed in the file",
        ),
    ],
)
def test_an_endpoint_file_with_a_mistake_is_refused(text: str, problem: str, folder: Path) -> None:
    (folder / "e.json").write_text(text)

    with pytest.raises(ConfigError, match=problem):
        read_endpoint_option("e.json")


def test_an_endpoint_is_a_word_or_a_file(folder: Path) -> None:
    (folder / "e.json").write_text('{"provider": "mock", "model": "script"}')

    assert read_endpoint_option("mock:echo").model == "echo"
    assert read_endpoint_option("e.json").model == "script"
