"""Server scripts and the first prompt of their episodes. Whole episodes are in tests/flows."""

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assay.environments import BasicEnvironment
from assay.errors import ConfigError, EnvironmentFault
from assay.pytest_plugin.eval_protocol.mcp_gym import GymEpisode, GymServer, check_imports
from assay.types import Message, Sample
from make import asked


class Room(BasicEnvironment):
    """Tells what it was made and opened with."""

    def __init__(self, task: Mapping[str, Any], *words: str) -> None:
        self.task = task
        self.words = words
        self.seed: int | None = None

    async def open(self, *, seed: int | None = None) -> list[Message]:
        self.seed = seed
        return [asked(word) for word in self.words]


def open_episode(*words: str, **about: Any) -> tuple[Room, list[Message]]:
    rooms: list[Room] = []

    def make(task: Mapping[str, Any]) -> Room:
        rooms.append(Room(task, *words))
        return rooms[0]

    episode = GymEpisode(make, Sample(metadata={"dataset_info": about}))
    opening = asyncio.run(episode.open(seed=99))
    return rooms[0], list(opening)


def test_the_template_is_filled_with_the_observation_and_the_context() -> None:
    room, opening = open_episode(
        "a door",
        user_prompt_template="You see {observation} on floor {floor}.",
        environment_context={"floor": 3, "seed": 0},
    )

    assert opening == [asked("You see a door on floor 3.")]
    assert (room.task, room.seed) == ({"floor": 3, "seed": 0}, 0)


def test_without_a_template_the_observation_is_the_prompt() -> None:
    room, opening = open_episode("a door")

    assert opening == [asked("a door")]
    assert room.seed == 99


def test_a_template_that_cannot_be_filled_is_a_fault() -> None:
    with pytest.raises(EnvironmentFault, match="`user_prompt_template` cannot be filled"):
        open_episode("a door", user_prompt_template="{nothing}")
    with pytest.raises(EnvironmentFault, match="no /control/initial_state to fill"):
        open_episode(user_prompt_template="{observation}")


def test_a_script_that_does_not_exist_is_refused_when_the_test_runs(tmp_path: Path) -> None:
    server = GymServer("no_such.py", tmp_path, {})

    with pytest.raises(ConfigError, match=r"no_such\.py does not exist"):
        asyncio.run(server.__aenter__())


@pytest.mark.parametrize(
    "code",
    ["import eval_protocol", "from eval_protocol.mcp import McpGym", "import eval_protocol.mcp"],
)
def test_a_script_that_imports_what_is_not_installed_is_refused(
    code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "server.py"
    script.write_text(f"import json\n{code}\n")
    stand_in = SimpleNamespace(__spec__=SimpleNamespace(origin="assay.compat"))
    monkeypatch.setitem(sys.modules, "eval_protocol", stand_in)

    with pytest.raises(ConfigError, match="the server script imports `eval_protocol`"):
        check_imports(script)
    installed = SimpleNamespace(__spec__=SimpleNamespace(origin="eval_protocol/__init__.py"))
    monkeypatch.setitem(sys.modules, "eval_protocol", installed)
    check_imports(script)


def test_a_script_that_is_not_python_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = SimpleNamespace(__spec__=SimpleNamespace(origin="assay.compat"))
    monkeypatch.setitem(sys.modules, "eval_protocol", stand_in)
    (tmp_path / "server.py").write_text("import (")

    with pytest.raises(ConfigError, match="the script is not Python"):
        check_imports(tmp_path / "server.py")
