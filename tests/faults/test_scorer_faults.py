"""Scorers that raise, return what is no score, or never return."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from assay.errors import AssayError
from assay.runner import EvalConfig, Progress, evaluate
from assay.stats import GateRule, Outcome, judge_gate, summarise
from assay.store import Store
from assay.types import Endpoint, Sample
from misbehaving import MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
ECHO = {"provider": "mock", "model": "echo"}


def standard_json(text: str) -> Any:
    """Read JSON that any reader can read: without NaN and infinity."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_samples_whose_scorer_raises_are_counted_and_decide_with_the_gate(
    tmp_path: Path, store: Path, start: Start
) -> None:
    dataset = write_rows(tmp_path / "data.jsonl", names(100))

    run = start(program(dataset=dataset, store=store, endpoint=ECHO, scorer="raises_on_three"))

    assert run.ended() == 0, run.stderr
    assert run.summary["judged_samples"] == 97
    assert run.summary["failed"] == {"scorer": 3}
    assert run.summary["score"]["interval"]["mean"] == 1.0
    recorded = Recorded(store)
    assert sorted(recorded.attempts) == ["r3", "r50", "r7"]
    failed = recorded.samples["r7"]
    assert failed.score is not None
    assert not failed.score.is_score_valid
    assert failed.failure is not None
    assert "raises_on_three" in str(failed.failure.traceback)
    with Store.open(store, create=False) as opened:
        summary = summarise(opened.run().results())
    lenient = judge_gate(summary, GateRule(minimum=0.9, max_not_judged=0.03))
    strict = judge_gate(summary, GateRule(minimum=0.9, max_not_judged=0.02))
    assert lenient.exit_status == 0
    assert strict.outcome is Outcome.COULD_NOT_TELL
    assert strict.exit_status != 0


def test_what_is_no_score_is_not_averaged_and_output_stays_standard_json(
    tmp_path: Path, store: Path, start: Start
) -> None:
    bad = ["nan", "inf", "-inf", "none", "text", "list", "huge", "nearly-inf", "complex"]
    good = ["one", "large"]
    dataset = write_rows(tmp_path / "data.jsonl", [*bad, "invalid", *good])

    run = start(
        program(dataset=dataset, store=store, endpoint=ECHO, scorer="returns_what_it_is_told")
    )

    assert run.ended() == 0, run.stderr
    for line in run.stdout.splitlines():
        standard_json(line)
    assert run.summary["failed"] == {"scorer": len(bad)}
    assert run.summary["invalid"] == 1
    assert run.summary["judged_samples"] == len(good)
    assert run.summary["score"]["interval"]["mean"] == 4.0
    recorded = Recorded(store)
    assert sorted(recorded.results) == ["invalid", "large", "one"]
    assert all(recorded.samples[name].reward is None for name in [*bad, "invalid"])
    for sample in recorded.samples.values():
        standard_json(sample.to_json())


def test_a_scorer_that_never_returns_fails_its_sample_when_time_is_up(
    tmp_path: Path, store: Path, start: Start
) -> None:
    dataset = write_rows(tmp_path / "data.jsonl", names(10))

    run = start(
        program(
            dataset=dataset,
            store=store,
            endpoint=ECHO,
            scorer="never_returns",
            config={"timeout_s": 3.0},
        )
    )

    assert run.ended() == 0, run.stderr
    assert run.summary["judged_samples"] == 9
    assert run.summary["failed"] == {"scorer": 1}
    assert Recorded(store).attempts["r3"].message == "the sample was not finished within 3.0 s"
    assert run.said("left") == [[]]


def test_a_sample_that_is_cancelled_from_within_does_not_vanish_from_a_completed_run(
    tmp_path: Path, store: Path
) -> None:
    async def gives_up(sample: Sample) -> bool:
        if sample.id == "r3":
            raise asyncio.CancelledError
        return True

    dataset = write_rows(tmp_path / "data.jsonl", names(10))
    config = EvalConfig(endpoint=Endpoint(**ECHO), score_fn=gives_up, concurrency=1)

    with pytest.raises(AssayError, match="the code of a sample cancelled its own task"):
        asyncio.run(evaluate(dataset, config, store=store))

    recorded = Recorded(store)
    assert recorded.status == "failed"
    assert recorded.results == ["r0", "r1", "r2"]


def test_a_callback_that_breaks_ends_the_run_rather_than_being_passed_over(
    tmp_path: Path, store: Path
) -> None:
    def broken(progress: Progress) -> None:
        raise ValueError("no terminal")

    dataset = write_rows(tmp_path / "data.jsonl", names(10))
    config = EvalConfig(endpoint=Endpoint(**ECHO), score_fn=lambda sample: 1.0)

    with pytest.raises(ValueError, match="no terminal"):
        asyncio.run(evaluate(dataset, config, store=store, watch=broken))

    assert Recorded(store).status == "failed"


EVALUATION = """
from assay import Endpoint, EvalConfig

def score(sample):
    SCORER

config = EvalConfig(
    endpoint=Endpoint(provider="openai", model="m", api_base="URL", api_key="k-1"), score_fn=score
)
dataset = "data.jsonl"
"""


@pytest.fixture
def scored_by(
    tmp_path: Path, server: MisbehavingServer, start: Start
) -> Callable[..., tuple[int, str]]:
    """Run `assay eval` with a scorer. Its exit status, and what it printed to stderr."""
    write_rows(tmp_path / "data.jsonl", names(5))

    def run(scorer: str, *options: str) -> tuple[int, str]:
        text = EVALUATION.replace("URL", server.url).replace("SCORER", scorer)
        (tmp_path / "scored.py").write_text(text, "utf-8")
        command = [sys.executable, "-m", "assay", "eval", "scored.py", "--store", "assay.db"]
        ended = start([*command, *options])
        return ended.ended(), ended.stderr

    return run


def test_a_corrected_scorer_asks_the_model_nothing_again(
    store: Path, server: MisbehavingServer, scored_by: Callable[..., tuple[int, str]]
) -> None:
    assert scored_by("raise KeyError(sample.id)")[0] == 3
    assert server.asked() == Counter(names(5))

    assert scored_by("return 1.0", "--resume")[0] == 0

    assert server.asked() == Counter(names(5))
    assert sorted(Recorded(store).results) == names(5)


def test_a_corrected_scorer_is_no_second_scorer_of_a_run(
    store: Path, server: MisbehavingServer, scored_by: Callable[..., tuple[int, str]]
) -> None:
    assert scored_by("return 1 / (sample.id != 'r3')")[0] == 3

    status, said = scored_by("return 0.5", "--resume")
    assert status == 2
    assert "score the recorded rollouts without model calls: `assay score " in said
    assert scored_by("return 0.5", "--resume", "--rescore")[0] == 0

    assert server.asked() == Counter(names(5))
    assert {row.reward for row in Recorded(store).samples.values()} == {0.5}
