"""The `environment` setting: names, classes and factories, and its older names."""

from pathlib import Path
from typing import Any

import pytest

from assay.environments import BasicEnvironment, CalculatorEnvironment, Environment
from assay.environments.setting import (
    accept_environment_alias,
    build_environment_factory,
    rename_environment,
)
from assay.errors import ConfigError
from assay.types import Sample
from plugin_package import install_package

SAMPLE = Sample(id="one", prompt="?")


class Room(BasicEnvironment):
    """Keeps the argument of its constructor."""

    def __init__(self, sample: Sample) -> None:
        self.given: object = sample


class Sized(BasicEnvironment):
    """Needs no argument, though it accepts one."""

    def __init__(self, sample: Sample | None = None) -> None:
        assert sample is None


def create(environment: Any) -> Environment:
    return build_environment_factory(environment, where="here")(SAMPLE)


@pytest.mark.parametrize(
    ("environment", "kind"),
    [
        (None, BasicEnvironment),
        ("calculator", CalculatorEnvironment),
        (BasicEnvironment, BasicEnvironment),
        (Sized, Sized),
        (lambda: CalculatorEnvironment(), CalculatorEnvironment),
        (lambda size=Sized: size(), Sized),
        (Room, Room),
        (lambda sample: Room(sample), Room),
    ],
)
def test_a_name_a_class_or_a_factory_creates_an_environment(environment: Any, kind: type) -> None:
    assert type(create(environment)) is kind


@pytest.mark.parametrize(
    "environment",
    [Room, lambda row: Room(row), lambda *rows: Room(*rows), lambda sample=None: Room(sample)],
)
def test_a_factory_that_takes_the_sample_receives_it(environment: Any) -> None:
    created = create(environment)

    assert isinstance(created, Room)
    assert created.given is SAMPLE


async def later(sample: Sample) -> None: ...


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ("abacus", "unknown environment 'abacus'"),
        (3, "here: environment=3 is not callable"),
        (lambda sample, second: None, "here: `environment` cannot be called with a sample"),
        (lambda *, size: None, "missing a required .*'size'"),
        (later, "here: `environment` is async"),
    ],
)
def test_anything_else_is_refused(environment: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        create(environment)


@accept_environment_alias("environment_cls")
def roll_out(prompt: str, environment: Any, endpoint: str = "mock:echo") -> tuple[Any, ...]:
    return prompt, environment, endpoint


def test_a_function_accepts_the_alias_in_place_of_the_setting() -> None:
    by_alias: Any = {"environment_cls": "basic"}

    assert roll_out("?", **by_alias) == ("?", "basic", "mock:echo")
    assert roll_out(prompt="?", endpoint="mock:x", **by_alias) == ("?", "basic", "mock:x")
    assert roll_out("?", "basic") == ("?", "basic", "mock:echo")


@pytest.mark.parametrize("given", [("?", "basic"), ("?",)])
def test_both_names_of_the_setting_are_refused(given: tuple[str, ...]) -> None:
    named: Any = {"environment_cls": "basic"}
    if len(given) == 1:
        named["environment"] = "basic"

    with pytest.raises(ConfigError, match="both `environment` and `environment_cls` are given"):
        roll_out(*given, **named)


def test_a_table_of_settings_has_the_setting_under_one_name() -> None:
    assert _renamed({"environment_cls": "basic"}) == {"environment": "basic"}
    assert _renamed({"environment": "basic"}) == {"environment": "basic"}
    assert _renamed({}) == {"environment": None}
    with pytest.raises(ConfigError, match="here: both `environment` and"):
        _renamed({"environment": "basic", "environment_cls": "basic"})


def _renamed(settings: dict[str, Any]) -> dict[str, Any]:
    rename_environment(settings, "environment_cls", where="here")
    return settings


PLUGINS = """
from assay.environments import BasicEnvironment, CalculatorEnvironment

class Room(BasicEnvironment):
    def __init__(self, sample):
        self.given = sample

def create():
    return CalculatorEnvironment()

class Maze(BasicEnvironment):
    def __init__(self, size):
        self.size = int(size)

def furnish(color, sample):
    room = Room(sample)
    room.color = color
    return room

number = 4
"""


@pytest.fixture
def _plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        f"environments.my-{name}": f"acme_assay:{name}" for name in ("create", "furnish", "number")
    }
    names = {
        "environments.room": "acme_assay:Room",
        "environments.maze": "acme_assay:Maze",
        "environments.basic": "acme_assay:number",
    }
    install_package(tmp_path, monkeypatch, {**entries, **names}, code=PLUGINS)


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_creates_environments_with_or_without_the_sample() -> None:
    room: Any = create("room")

    assert room.given is SAMPLE
    assert isinstance(create("my-create"), CalculatorEnvironment)
    assert type(create("basic")) is BasicEnvironment


@pytest.mark.usefixtures("_plugins")
def test_the_settings_after_the_name_are_the_first_argument_of_a_plugin() -> None:
    maze: Any = create("maze:12")
    room: Any = create("my-furnish:blue:dark")

    assert maze.size == 12
    assert (room.color, room.given) == ("blue:dark", SAMPLE)
    assert create("maze:12") is not maze


@pytest.mark.usefixtures("_plugins")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("my-create:3", "the environment takes no settings"),
        ("my-number", "the environment is of type `int`, not a class or a function"),
        ("my-room", "unknown environment 'my-room'"),
    ],
)
def test_a_plugin_that_creates_no_environment_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        create(name)


@pytest.mark.usefixtures("_plugins")
def test_the_names_of_plugins_are_listed_where_one_is_unknown() -> None:
    with pytest.raises(ConfigError) as refused:
        create("my-room")

    assert refused.value.hint == (
        "choose one of 'basic', 'calculator', 'gym:NAME', 'my-create', 'my-furnish', 'my-number', "
        "'room', 'maze'"
    )
