"""What `assay env serve` takes for an environment, and what it refuses before it listens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.cli import env, main
from assay.cli.env import load_served_environment, probe_tools
from assay.environments import CalculatorEnvironment, GymEnvironment, ServerSettings
from assay.errors import AssayError, ConfigError
from plugin_package import install_package
from served_environments import Counting, NeedsTask


@pytest.mark.parametrize(
    ("target", "made", "takes_task"),
    [
        ("served_environments:Counting", Counting, False),
        ("served_environments:NeedsTask", NeedsTask, True),
        ("calculator", CalculatorEnvironment, False),
        ("gym:FrozenLake-v1", GymEnvironment, False),
    ],
)
def test_a_class_or_a_name_makes_fresh_environments(
    target: str, made: type, takes_task: bool
) -> None:
    served = load_served_environment(target)

    first, second = served.make({"word": "a"}), served.make({"word": "b"})

    assert served.takes_task is takes_task
    assert type(first) is type(second) is made
    assert first is not second


def test_an_environment_may_be_in_a_file(tmp_path: Path) -> None:
    desk = tmp_path / "my_desk.py"
    desk.write_text(
        "from assay.environments import CalculatorEnvironment\n\n\n"
        "class Desk(CalculatorEnvironment): ...\n"
    )

    made = load_served_environment(f"{desk}:Desk").make({})

    assert type(made).__name__ == "Desk"


REFUSED = {
    "served_environments": "the environment is not of the form module:Class",
    ":Counting": "the environment is not of the form module:Class",
    "served_environments:": "the environment is not of the form module:Class",
    "served_environments:Nothing": "has no attribute 'Nothing'",
    "no_such_module:Nothing": "No module named 'no_such_module'",
    "served environments:Counting": "the environment is not of the form module:Class",
    "served_environments:NUMBER": "is a int, not a class or a function",
    "served_environments:NeedsMore": "the factory requires `places`",
}


@pytest.mark.parametrize("target", REFUSED)
def test_what_is_no_environment_is_refused_at_once(target: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_served_environment(target)

    assert target in str(refused.value)
    assert REFUSED[target] in refused.value.message


def test_a_module_that_breaks_is_named_with_its_own_error(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_module_here.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigError, match="cannot be imported: ZeroDivisionError"):
        load_served_environment("broken_module_here:Desk")


@pytest.mark.parametrize("target", ["served_environments:no_environment", "gym:NoSuchGame-v0"])
def test_what_makes_no_environment_is_refused_before_anybody_asks(target: str) -> None:
    with pytest.raises(AssayError):
        asyncio.run(probe_tools(load_served_environment(target)))


def test_the_tools_are_known_unless_it_takes_a_task_to_make_an_environment() -> None:
    tools = asyncio.run(probe_tools(load_served_environment("calculator")))

    assert tools is not None
    assert [tool.name for tool in tools] == ["calculate"]
    assert (
        asyncio.run(probe_tools(load_served_environment("served_environments:NeedsTask"))) is None
    )


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[ServerSettings]:
    """What would have been served."""
    seen: list[ServerSettings] = []

    async def serve(served: Any, settings: ServerSettings, **options: Any) -> None:
        seen.append(settings)

    monkeypatch.setattr(env, "_serve_environment", serve)
    monkeypatch.delenv(env.TOKEN_VARIABLE, raising=False)
    return seen


def test_other_machines_need_a_token_which_is_made_up(settings: list[ServerSettings]) -> None:
    for host in ("127.0.0.1", "0.0.0.0", "0.0.0.0"):
        assert main(["env", "serve", "calculator", "--host", host]) == 0

    tokens = [each.token for each in settings]
    assert tokens[0] is None
    assert tokens[1] != tokens[2]
    assert all(token is not None and len(token) >= 32 for token in tokens[1:])


def test_a_token_from_the_environment_is_demanded_also_on_loopback(
    settings: list[ServerSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env.TOKEN_VARIABLE, "a-token-of-the-user")

    assert main(["env", "serve", "calculator"]) == 0

    assert settings[0].token == "a-token-of-the-user"


def test_options_reach_the_server(settings: list[ServerSettings]) -> None:
    main(["env", "serve", "calculator", "--port", "81", "--capacity", "5", "--idle-s", "1.5"])

    assert (settings[0].port, settings[0].capacity, settings[0].idle_s) == (81, 5, 1.5)
    assert settings[0].name == "calculator"
    assert not settings[0].takes_task


@pytest.mark.parametrize(
    "arguments",
    [[], ["stop"], ["serve"], ["serve", "calculator", "--port", "x"],
     ["serve", "calculator", "--port", "70000"]],
)  # fmt: skip
def test_a_wrong_command_line_is_refused(
    arguments: list[str], settings: list[ServerSettings], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["env", *arguments]) == 2
    assert settings == []
    assert "hint:" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--capacity", "--idle-s"])
def test_impossible_bounds_are_refused(
    option: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(env.TOKEN_VARIABLE, raising=False)

    assert main(["env", "serve", "calculator", option, "0"]) == 2
    assert capsys.readouterr().out == ""


def test_a_plugin_is_served_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {"environments.desk": "served_environments:NeedsTask"}
    install_package(tmp_path, monkeypatch, entries)

    served = load_served_environment("desk")

    assert served.takes_task
    assert type(served.make({"word": "a"})) is NeedsTask
