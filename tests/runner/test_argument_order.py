"""Arguments in the wrong order or of another type: refused before anything is opened."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.runner import EvalConfig, Shard, evaluate, evaluate_sync, rescore, run_shard
from assay.store import Store, copy_run
from runner_runs import ECHO, right, rows


def test_swapped_arguments_are_refused_with_their_order(store: Path) -> None:
    config: Any = EvalConfig(endpoint=ECHO, score_fn=right)
    shard = Shard("nightly", 1, 2)

    for swapped, order in (
        (evaluate(config, rows(1), store=store), r"evaluate\(dataset, config, \.\.\.\)"),  # type: ignore[arg-type]
        (run_shard(config, rows(1), shard, store=store), r"run_shard\(dataset, config, \.\.\.\)"),  # type: ignore[arg-type]
        (rescore(right, "latest", store=store), r"rescore\(run_id, score_fn, \.\.\.\)"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=order):
            asyncio.run(swapped)
    with pytest.raises(ConfigError, match=r"evaluate\(dataset, config, \.\.\.\)"):
        evaluate_sync(config, rows(1), store=store)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"Shard\(run_id, number, count\)"):
        Shard(1, 2, "nightly")  # type: ignore[arg-type]

    assert not store.exists()


def test_arguments_of_another_type_are_refused_by_their_name(store: Path) -> None:
    config: Any = EvalConfig(endpoint=ECHO, score_fn=right)

    for wrong, name in (
        (evaluate(rows(1), {"endpoint": "mock:echo"}, store=store), "`config`"),  # type: ignore[arg-type]
        (evaluate(rows(1), config, store=store, resume=True), "`resume`"),  # type: ignore[arg-type]
        (run_shard(rows(1), config, "1/2", store=store), "`shard`"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError, match=f"{name} cannot be of type"):
            asyncio.run(wrong)

    assert not store.exists()


def test_a_copy_takes_the_stores_before_the_run(tmp_path: Path) -> None:
    with Store.open(tmp_path / "a.db") as store, Store.open(tmp_path / "b.db") as other:
        with pytest.raises(ConfigError, match=r"copy_run\(store, other, run_id\)"):
            copy_run("latest", store, other)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="`other` cannot be of type `str`"):
            copy_run(store, str(tmp_path / "b.db"), "latest")  # type: ignore[arg-type]
