"""`rescore`: another scorer over recorded rollouts, without calling a model."""

import asyncio
from pathlib import Path

import pytest

from assay.endpoints import ClientSettings
from assay.errors import ConfigError
from assay.evaluation import EvalConfig, evaluate, rescore
from assay.models import Endpoint, Sample
from assay.record import Store

ROWS = [{"id": f"r{n}", "question": f"Say {n}"} for n in range(4)]


def recorded(store: Path, *replies: object, repeats: int = 1) -> str:
    def fussy(sample: Sample) -> float:
        if sample.id == "r2":
            raise ValueError("cannot judge this")
        return 0.0

    endpoint = Endpoint(
        provider="mock", model="script", extra_params={"replies": list(replies), "loop": True}
    )
    config = EvalConfig(
        endpoint=endpoint,
        score_fn=fussy,
        repeats=repeats,
        concurrency=1,
        client=ClientSettings(max_retries=0),
    )
    return asyncio.run(evaluate(ROWS, config, store=store)).run_id


def test_the_same_rollouts_get_new_results_in_a_run_of_their_own(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes")

    report = asyncio.run(rescore(old, lambda sample: sample.response == "yes", store=store))

    assert report.run_id != old
    assert report.mean == 1.0
    assert report.summary.judged_samples == 4
    with Store.open(store) as opened:
        assert opened.run(old).totals.failed == 1
        assert [sample.reward for sample in opened.run(old).samples()] == [0.0, 0.0, None, 0.0]


def test_repeats_are_kept_apart(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", "no", repeats=2)

    report = asyncio.run(rescore(old, lambda sample: sample.response == "yes", store=store))

    assert report.summary.results == 8
    assert report.mean == 0.5


def test_a_rollout_that_broke_is_not_scored(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, "yes", {"error": {"status": 400}})

    report = asyncio.run(rescore(old, lambda sample: 1.0, store=store))

    assert report.summary.samples == 2


def test_a_run_without_rollouts_cannot_be_rescored(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    old = recorded(store, {"error": {"status": 400}})

    with pytest.raises(ConfigError, match="has no rollout to score"):
        asyncio.run(rescore(old, lambda sample: 1.0, store=store))
