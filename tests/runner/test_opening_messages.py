"""What environments add to a prompt: compared before a resumed run pays for anything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.environments import BasicEnvironment
from assay.errors import ConfigError
from assay.runner import EvalConfig
from assay.store import Store
from assay.types import Message, ToolSpec
from runner_runs import ECHO, rows, run


class Room(BasicEnvironment):
    """Opens with the rules of the house, and may have a tool."""

    rules: Any = "Be brief."
    offered: Sequence[ToolSpec] = ()
    opened = 0
    closed = 0

    def __init__(self) -> None:
        self.tools = Room.offered

    async def open(self, *, seed: int | None = None) -> Sequence[Message]:
        Room.opened += 1
        text = Room.rules() if callable(Room.rules) else Room.rules
        return [Message(role="system", content=text)]

    async def close(self) -> None:
        Room.closed += 1


@pytest.fixture(autouse=True)
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("rules", "Be brief."), ("offered", ()), ("opened", 0), ("closed", 0)):
        monkeypatch.setattr(Room, name, value)


def config(**settings: Any) -> EvalConfig:
    return EvalConfig(
        endpoint=ECHO,
        score_fn=lambda sample: 1.0,
        environment=lambda sample: Room(),
        **settings,
    )


@pytest.mark.parametrize(
    ("name", "value"), [("rules", "Be verbose."), ("offered", (ToolSpec(name="look"),))]
)
@pytest.mark.parametrize("repeats", [1, 2])
def test_an_environment_that_opens_otherwise_is_refused(
    store: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any, repeats: int
) -> None:
    evaluation = config(repeats=repeats)
    run(rows(2), evaluation, store=store)
    monkeypatch.setattr(Room, name, value)

    with pytest.raises(ConfigError, match="the environment opens sample 'r0' with other messages"):
        run(rows(3), evaluation, store=store, resume="latest")

    with Store.open(store) as opened:
        assert opened.run().totals.recorded == 2 * repeats
    assert Room.opened == Room.closed


def test_the_same_environment_is_opened_once_to_compare(store: Path) -> None:
    evaluation = config()
    run(rows(2), evaluation, store=store)
    Room.opened = 0

    report = run(rows(3), evaluation, store=store, resume="latest")

    assert report.summary.judged_samples == 3
    assert Room.opened == 2


def test_an_environment_that_never_opens_the_same_way_is_not_compared(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Room, "rules", staticmethod(lambda: f"Visit {Room.opened}."))
    evaluation = config()
    run(rows(2), evaluation, store=store)

    assert run(rows(3), evaluation, store=store, resume="latest").summary.judged_samples == 3


def test_an_environment_that_breaks_is_not_compared(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation = config()
    run(rows(2), evaluation, store=store)
    monkeypatch.setattr(Room, "rules", staticmethod(lambda: 1 / 0))

    resumed = run(rows(3), evaluation, store=store, resume="latest")

    assert resumed.summary.failed == {"environment": 1}
