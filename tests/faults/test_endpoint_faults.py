"""Servers that throttle, break, refuse or keep silent, and what that does to a run."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from misbehaving import PATIENCE_S, Exchange, MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
FINE = names(10, "fine")
BROKEN = ["500", "502", "503", "reset", "half-closed"]
REFUSED = ["400", "401", "403", "404"]


@pytest.fixture
def evaluation(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start
) -> Callable[..., Evaluation]:
    """Start an evaluation of samples with these names on the server."""

    def begin(samples: list[str], **options: Any) -> Evaluation:
        dataset = write_rows(tmp_path / "data.jsonl", samples)
        endpoint = {"provider": "openai", "model": "m", "api_base": server.url, "api_key": "k-1"}
        return start(program(dataset=dataset, store=store, endpoint=endpoint, **options))

    return begin


class Throttling:
    """Refuses the first call about each sample with a time to wait, in seconds or as a date."""

    def __init__(self, server: MisbehavingServer) -> None:
        self._server = server
        self.not_before: dict[str, float] = {}
        self.most_before = self.most_after = 0

    async def react(self, exchange: Exchange) -> None:
        self._look(exchange)
        if exchange.call.number == 1:
            await self._until(lambda: self.most_before >= 20)
            await self._refuse(exchange)
        else:
            await self._until(lambda: self.most_after >= 10)
            await exchange.echo()

    async def _until(self, enough: Callable[[], bool]) -> None:
        """Hold answers back until as many calls are there at once as are expected."""
        deadline = time.monotonic() + PATIENCE_S / 3
        while not enough() and time.monotonic() < deadline:
            await asyncio.sleep(0.002)

    async def _refuse(self, exchange: Exchange) -> None:
        moment, wait = time.time() + 1.0, "1"
        if exchange.call.sample.startswith("date"):
            moment = float(math.ceil(moment))
            wait = formatdate(moment, usegmt=True)
        self.not_before[exchange.call.sample] = moment
        await exchange.answer(429, {"error": {"message": "slow down"}}, Retry_After=wait)

    def _look(self, exchange: Exchange) -> None:
        """Note how many calls are there at once: first ones, then those that come back."""
        if exchange.call.number == 1:
            self.most_before = max(self.most_before, self._server.at_once)
        else:
            self.most_after = max(self.most_after, self._server.at_once)


def test_throttled_calls_wait_as_asked_and_concurrency_is_cut_once(
    evaluation: Callable[..., Evaluation], store: Path, server: MisbehavingServer
) -> None:
    throttling = Throttling(server)
    server.react = throttling.react
    samples = [*names(30, "seconds"), *names(10, "date")]

    run = evaluation(samples)

    assert run.ended() == 0, run.stderr
    assert run.summary["judged_samples"] == 40
    assert run.summary["failed"] == {}
    assert server.asked() == Counter(dict.fromkeys(samples, 2))
    again = {call.sample: call.arrived for call in server.calls if call.number == 2}
    early = [name for name in samples if again[name] < throttling.not_before[name] - 0.005]
    assert early == []
    assert throttling.most_before == 20
    # Halved once. A second cut would have left 8 or less.
    assert throttling.most_after == 10
    recorded = Recorded(store)
    assert recorded.attempts == {}
    assert {_attempts(recorded, name) for name in samples} == {2}


def _attempts(recorded: Recorded, name: str) -> int | None:
    trajectory = recorded.samples[name].trajectory
    assert trajectory is not None
    return trajectory.calls[0].attempts


async def breaks(exchange: Exchange) -> None:
    """Break as the sample says; `once-…` only at the first call."""
    kind = exchange.call.sample.removeprefix("once-")
    if kind.startswith("fine") or (kind != exchange.call.sample and exchange.call.number > 1):
        await exchange.echo()
    elif kind == "reset":
        await exchange.reset()
    elif kind == "half-closed":
        await exchange.half_close()
    else:
        await exchange.answer(int(kind), {"error": {"message": f"told to say {kind}"}})


def test_a_broken_server_is_asked_again_a_few_times_and_then_fails_its_sample_only(
    evaluation: Callable[..., Evaluation], store: Path, server: MisbehavingServer
) -> None:
    server.react = breaks
    once = [f"once-{kind}" for kind in BROKEN]
    samples = [*FINE[:5], *BROKEN, *once, *FINE[5:]]

    run = evaluation(samples, client={"max_retries": 2})

    assert run.ended() == 0, run.stderr
    assert run.summary["failed"] == {"endpoint": len(BROKEN)}
    assert run.summary["judged_samples"] == len(FINE) + len(once)
    assert run.summary["score"]["interval"]["mean"] == 1.0
    expected = Counter({**dict.fromkeys(FINE, 1), **dict.fromkeys(once, 2)})
    assert server.asked() == expected + Counter(dict.fromkeys(BROKEN, 3))
    recorded = Recorded(store)
    assert {_attempts(recorded, name) for name in once} == {2}
    assert sorted(recorded.attempts) == sorted(BROKEN)
    for attempt in recorded.attempts.values():
        assert attempt.boundary == "endpoint"
        assert attempt.retryable
        assert "(gave up after 3 attempts)" in attempt.message
    assert recorded.samples["503"].reward is None
    assert recorded.status == "completed"
    calls = len(server.calls)
    server.react = Exchange.echo
    again = evaluation(samples, resume={})
    assert again.ended() == 0, again.stderr
    assert server.asked(calls) == Counter(BROKEN)
    assert again.summary["judged_samples"] == len(samples)
    assert again.summary["failed"] == {}
    # What failed before is still there to be looked at.
    assert sorted(Recorded(store).attempts) == sorted(BROKEN)


def test_a_refused_request_is_not_repeated(
    evaluation: Callable[..., Evaluation], store: Path, server: MisbehavingServer
) -> None:
    server.react = breaks
    samples = [FINE[0], *REFUSED, *FINE[1:]]

    # One at a time: the first answer comes before the first refusal.
    run = evaluation(samples, config={"concurrency": 1})

    assert run.ended() == 0, run.stderr
    assert server.asked() == Counter(samples)
    assert run.summary["failed"] == {"endpoint": len(REFUSED)}
    assert run.summary["judged_samples"] == len(FINE)
    attempts = Recorded(store).attempts
    assert sorted(attempts) == REFUSED
    assert not any(attempt.retryable for attempt in attempts.values())


def test_a_key_that_is_refused_at_first_stops_the_run_with_one_error(
    evaluation: Callable[..., Evaluation], store: Path, server: MisbehavingServer
) -> None:
    async def refuses(exchange: Exchange) -> None:
        if exchange.call.sample == "silent":
            await exchange.keep_silent()
        await exchange.answer(401, {"error": {"message": "no such key"}})

    server.react = refuses

    # The call that is never answered must not hold up what is already known.
    run = evaluation(["silent", *names(200)], config={"concurrency": 5})

    assert run.ended() == 3
    assert run.error["kind"] == "AccessDenied"
    assert "HTTP 401: no such key" in run.error["text"]
    assert "the key of this Endpoint is not accepted" in run.error["text"]
    assert len(server.calls) <= 10
    assert set(server.asked().values()) == {1}
    recorded = Recorded(store)
    assert recorded.status == "failed"
    assert recorded.samples == {}
    assert run.said("left") == [[]]


@pytest.mark.parametrize(
    ("options", "message", "calls"),
    [
        (
            {"client": {"request_timeout_s": 1.5, "max_retries": 1}},
            "the request timed out after 1.5 s (gave up after 2 attempts)",
            2,
        ),
        ({"config": {"timeout_s": 1.5}}, "the sample was not finished within 1.5 s", 1),
    ],
    ids=["request", "sample"],
)
def test_a_server_that_never_answers_costs_its_samples_and_nothing_else(
    evaluation: Callable[..., Evaluation],
    store: Path,
    server: MisbehavingServer,
    options: dict[str, Any],
    message: str,
    calls: int,
) -> None:
    async def sometimes_silent(exchange: Exchange) -> None:
        silent = exchange.call.sample.startswith("silent")
        await (exchange.keep_silent() if silent else exchange.echo())

    server.react = sometimes_silent
    silent = names(3, "silent")

    run = evaluation([*silent, *FINE], **options)

    assert run.ended() == 0, run.stderr
    assert run.summary["failed"] == {"endpoint": 3}
    assert run.summary["judged_samples"] == len(FINE)
    assert [server.asked()[name] for name in silent] == [calls] * 3
    attempts = Recorded(store).attempts
    assert {attempt.message.split(": ")[-1] for attempt in attempts.values()} == {message}
    assert run.said("left") == [[]]


@pytest.mark.parametrize(
    "complaint",
    [
        {"message": "This model's maximum context length is 10 tokens", "type": "invalid_request"},
        {"message": "too long", "code": "context_length_exceeded"},
    ],
    ids=["words", "code"],
)
def test_a_full_context_keeps_the_conversation_that_filled_it(
    evaluation: Callable[..., Evaluation],
    store: Path,
    server: MisbehavingServer,
    complaint: dict[str, str],
) -> None:
    async def full(exchange: Exchange) -> None:
        await exchange.answer(400, {"error": complaint})

    server.react = full

    run = evaluation(["long"])

    assert run.ended() == 0, run.stderr
    assert run.summary["failed"] == {"endpoint": 1}
    trajectory = Recorded(store).samples["long"].trajectory
    assert trajectory is not None
    assert trajectory.termination_reason == "context"
    assert [message.text for message in trajectory.messages] == ["long"]
