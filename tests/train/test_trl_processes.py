"""Two processes on the CPU that train one model: as many as there are, it is the same training."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError, TrainingError
from assay.store import Store
from assay.train.trl_processes import (
    ProcessRank,
    broadcast_from_first,
    check_process_rank,
    check_single_process,
)
from lamps import lamp_config
from trl_process import found_by_training

SUPPORT = Path(__file__).parents[1] / "support"


PLACE = """
import sys
from pathlib import Path

from assay.train.grpo_config import GRPOConfig
from assay.train.trl_processes import find_process_rank

here = find_process_rank(GRPOConfig(model_name="none", backend="trl"))
(Path(sys.argv[1]) / f"process-{here.number}.json").write_text(f"[{here.number}, {here.count}]")
"""


def found_by(count: int, script: Path, folder: Path) -> list[Any]:
    """What the processes of `torchrun` wrote, as JSON; the first of them first."""
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count)]
    # It chooses the port itself, and its processes meet at its store.
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    env = {
        **os.environ,
        "PYTHONPATH": str(SUPPORT),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [*command, str(script), str(folder)], env=env, text=True, capture_output=True, timeout=400
    )
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"process-{each}.json").read_text()) for each in range(count)]


def test_two_processes_learn_what_one_does_and_record_it_once(tmp_path: Path) -> None:
    alone = found_by_training(tmp_path / "alone")

    first, second = found_by(2, SUPPORT / "trl_process.py", tmp_path / "two")

    assert first["run"] == second["run"]
    assert first["learned"] == second["learned"]
    assert first["learned"] == pytest.approx(alone["learned"], abs=1e-3)
    assert first["losses"] == second["losses"] == pytest.approx(alone["losses"], abs=1e-4)
    assert first["rewards"] == second["rewards"]
    assert len(first["rewards"]) == len(alone["rewards"]) == 2
    assert (first["follows"], second["follows"]) == (False, True)
    assert [first["interrupted"], second["interrupted"]] == [False, False]
    assert second["written"]
    # The first process scores every rollout, each once; two steps of two groups of four, and the
    # evaluations before, between and after them.
    assert (len(first["scored"]), second["scored"]) == (2 * 2 * 4 + 3, [])
    assert len(set(first["scored"])) == len(first["scored"])
    assert first["evaluations"] == second["evaluations"]
    assert len(first["evaluations"]) == 3
    with Store.open(tmp_path / "two" / "store.db") as store:
        runs = {run.id: run for run in store.runs()}
        assert len(runs) == 4
        training = runs[first["run"]]
        assert (training.status, training.totals.recorded) == ("completed", 16)
        recorded = [step.metrics["loss"] for step in store.run(first["run"]).steps()]
    assert recorded == first["losses"]


@pytest.mark.skipif(torch.accelerator.is_available(), reason="it would be used")
def test_processes_without_an_accelerator_find_each_other_unasked(tmp_path: Path) -> None:
    (tmp_path / "place.py").write_text(PLACE)

    assert found_by(2, tmp_path / "place.py", tmp_path) == [[0, 2], [1, 2]]


@pytest.mark.parametrize("told", ["", "1", "many"])
def test_one_process_is_alone(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", told)

    check_single_process()


def test_processes_that_cannot_find_each_other_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.trl_processes.find_process_rank", lambda _: ProcessRank(0, 1))
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(
        ConfigError, match="2 processes: the processes cannot find each other on this"
    ):
        check_process_rank(lamp_config(tmp_path, backend="trl"))


def test_one_process_is_the_first_and_asks_nobody(tmp_path: Path) -> None:
    assert check_process_rank(lamp_config(tmp_path, backend="trl", device="cpu")) == ProcessRank(
        0, 1
    )
    assert ProcessRank(0, 2).is_first
    assert not ProcessRank(1, 2).is_first
    assert broadcast_from_first("said") == "said"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"prompts_per_step": 1, "group_size": 3}, "the 3 rollouts of a step are not a multiple"),
        ({"trl": {"use_vllm": True}}, "trl.use_vllm"),
    ],
)
def test_what_several_processes_cannot_do_is_refused(
    fields: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.trl_processes.find_process_rank", lambda _: ProcessRank(0, 2))

    with pytest.raises(ConfigError, match=f"2 processes: {told}"):
        check_process_rank(lamp_config(tmp_path, backend="trl", **fields))


@pytest.mark.parametrize("flag", ["ACCELERATE_USE_DEEPSPEED", "ACCELERATE_USE_FSDP"])
def test_a_model_that_is_taken_apart_is_refused(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(flag, "true")

    with pytest.raises(ConfigError, match="DeepSpeed and FSDP shard the weights"):
        check_process_rank(lamp_config(tmp_path, backend="trl", device="cpu"))


def test_whoever_waits_for_a_process_that_is_gone_is_told_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr("accelerate.utils.broadcast_object_list", gone)

    with pytest.raises(TrainingError, match="another process of this training has ended"):
        broadcast_from_first()
