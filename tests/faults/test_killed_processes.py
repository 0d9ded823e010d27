"""A process that is killed in the middle of a run loses nothing that was acknowledged."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
ALL = names(300)


class Tiring:
    """Takes a moment for each answer, and answers no more calls than it was told to.

    So a process that is to be killed cannot be done before.
    """

    def __init__(self) -> None:
        self._left = 0

    def answer_next(self, count: int) -> None:
        self._left = count

    async def react(self, exchange: Exchange) -> None:
        self._left -= 1
        if self._left < 0:
            await exchange.keep_silent()
        await asyncio.sleep(0.008)
        await exchange.echo()


def killed_after(evaluation: Evaluation, count: int, server: MisbehavingServer) -> list[str]:
    """Kill it once it has said that so many samples are kept: which ones it said."""
    evaluation.wait_until(lambda it: it.stdout.count("kept") >= count)
    evaluation.kill()
    # Requests that were under way are counted before the next process makes any.
    server.wait_until(lambda: server.open == 0)
    return evaluation.kept


def test_a_run_killed_twice_is_completed_without_losing_or_doubling_a_sample(
    tmp_path: Path, store: Path, server: MisbehavingServer, start: Start
) -> None:
    tiring = Tiring()
    server.react = tiring.react
    options = {
        "dataset": write_rows(tmp_path / "data.jsonl", ALL),
        "store": store,
        "endpoint": {"provider": "openai", "model": "m", "api_base": server.url},
        "config": {"concurrency": 10},
    }

    tiring.answer_next(200)
    first = killed_after(start(program(**options)), 150, server)
    after_first = Recorded(store)
    calls = len(server.calls)
    tiring.answer_next(80)
    second = killed_after(start(program(**options, resume={})), 60, server)
    after_second = Recorded(store)
    last_calls = len(server.calls)
    tiring.answer_next(len(ALL))
    last = start(program(**options, resume={}))

    assert last.ended() == 0, last.stderr
    assert after_first.status == after_second.status == "interrupted"
    assert set(first) <= set(after_first.results)
    assert len(after_first.results) < len(ALL)
    assert {*first, *second} <= set(after_second.results)
    assert not set(server.asked(calls)) & set(after_first.results)
    missing = set(ALL) - set(after_second.results)
    assert missing
    assert server.asked(last_calls) == Counter(missing)
    assert set(last.kept) == missing
    assert last.summary["judged_samples"] == len(ALL)
    whole = Recorded(store)
    assert whole.results == ALL
    assert whole.status == "completed"
    assert whole.attempts == {}
