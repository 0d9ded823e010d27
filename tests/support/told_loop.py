"""An event loop whose time passes only while everything waits, and takes none."""

import asyncio
import selectors
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

Result = TypeVar("Result")


class _Selector(selectors.DefaultSelector):
    """Instead of waiting for the next timer, it says that it has waited."""

    at = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and no timer is set")
        self.at += timeout
        return super().select(0)


class ToldLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._told = _Selector()
        super().__init__(self._told)

    def time(self) -> float:
        return self._told.at


def in_told_time(work: Coroutine[Any, Any, Result], monkeypatch: pytest.MonkeyPatch) -> Result:
    """Run `work` in such a loop. Own time is read from the same clock."""
    loop = ToldLoop()
    monkeypatch.setattr("assay.providers.active_time.time", SimpleNamespace(perf_counter=loop.time))
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(work)
