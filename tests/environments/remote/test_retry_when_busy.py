"""Waiting for a place: how long, and when it is given up."""

import asyncio
from typing import Any

import pytest
from multidict import CIMultiDict

from assay.environments.remote.http_client import EnvironmentClient, ServerResponse
from assay.environments.remote.retry_when_busy import ServerBusy, retry_while_busy
from assay.errors import EnvironmentFault
from assay.providers.reply_redaction import Redactor


class Room:
    """Where waiting takes no time, and moves the clock."""

    def __init__(self) -> None:
        self.waited: list[float] = []

    async def wait(self, retry_after_s: float) -> None:
        self.waited.append(retry_after_s)

    def clock(self) -> float:
        return sum(self.waited)


def played(busy_times: int, retry_after_s: float | None, queue_s: float = 100.0) -> list[float]:
    """How long is waited for a server that is busy this often."""
    room: Any = Room()
    link = EnvironmentClient("http://h", None, queue_s=queue_s, queue=room)  # type: ignore[arg-type]  # not used
    left = [ServerBusy(retry_after_s)] * busy_times

    async def attempt() -> str:
        if left:
            raise left.pop()
        return "given"

    assert asyncio.run(retry_while_busy(link, attempt, clock=room.clock)) == "given"
    waited: list[float] = room.waited
    return waited


def test_a_place_that_is_free_is_taken_at_once() -> None:
    assert played(0, 5.0) == []


def test_the_time_that_the_server_names_is_waited() -> None:
    assert played(3, 2.5) == [2.5, 2.5, 2.5]


def test_a_second_is_waited_where_no_time_is_named() -> None:
    assert played(2, None) == [1.0, 1.0]


def test_no_longer_is_waited_than_the_queue_allows() -> None:
    assert played(3, 40.0) == [40.0, 40.0, 20.0]

    with pytest.raises(EnvironmentFault, match=r"the server had no free session for 100 s"):
        played(4, 40.0)


def answered(status: int, **headers: str) -> ServerResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return ServerResponse(status, CIMultiDict(named), b"", "here", Redactor([]))


def test_only_a_full_server_is_busy() -> None:
    for full in (answered(429), answered(429, Retry_After="3"), answered(503, Retry_After="3")):
        with pytest.raises(ServerBusy):
            ServerBusy.check(full)

    for other in (answered(200), answered(404), answered(500), answered(503)):
        ServerBusy.check(other)


def test_the_time_is_read_from_the_answer() -> None:
    with pytest.raises(ServerBusy) as busy:
        ServerBusy.check(answered(429, Retry_After="0.5"))

    assert busy.value.retry_after_s == 0.5
