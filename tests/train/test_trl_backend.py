"""`backend="trl"`: the same training as the local loop's, on TRL's trainer."""

import asyncio
import gc
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError, TrainingError
from assay.runner import Stop
from assay.store import Store
from assay.train.grpo import GRPOResult, grpo_train, grpo_train_async
from assay.train.lora import Lora
from assay.train.training_session import (
    CheckpointSaved,
    StepFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.types import EvaluateResult, Sample
from lamps import (
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    numbers,
    same,
    steps_kept,
    trained,
    weights,
)

UNMEASURED = ("ratio", "ratio_max")
"""By TRL."""


def dense(sample: Sample) -> float:
    return looked_and_said(sample) + 0.1 * len(sample.response)


def doubtful(sample: Sample) -> float | EvaluateResult:
    """Some rollouts it cannot judge, and at some it breaks."""
    repeat = int(str(sample.rollout_id).partition("#")[2])
    if repeat % 4 == 1:
        return EvaluateResult(score=0.0, is_score_valid=False)
    if repeat % 4 == 3 and sample.id == "lamp-1":
        raise ValueError("no idea")
    return dense(sample)


SETTINGS: dict[str, dict[str, Any]] = {
    "forks and tools": {"score_fn": dense},
    "unjudged, reference": {"score_fn": doubtful, "loss_type": "dr_grpo", "beta": 0.1},
    "by rollout": {"score_fn": doubtful, "loss_type": "grpo", "beta": 0.1, "environment": None},
    "two updates": {
        "score_fn": dense,
        "updates_per_step": 2,
        "clip_low": 0.01,
        "clip_high": 0.02,
        "schedule": "linear",
    },
    "sequences": {
        "score_fn": dense,
        "environment": None,
        "loss_type": "grpo",
        "importance_level": "sequence",
        "updates_per_step": 2,
    },
    "lora": {"score_fn": dense, "lora": Lora(rank=2), "beta": 0.1},
    "dropped": {
        "score_fn": doubtful,
        "zero_variance": "drop",
        "drop_truncated": True,
        "advantage": "mean",
        "weight_decay": 0.1,
        "temperature": 0.8,
    },
}


def compared(metrics: dict[str, Any]) -> dict[str, Any]:
    return {
        name: pytest.approx(value, rel=1e-3, abs=1e-5) if isinstance(value, float) else value
        for name, value in metrics.items()
        if name not in UNMEASURED
    }


@pytest.mark.parametrize("fields", SETTINGS.values(), ids=SETTINGS.keys())
def test_trl_and_the_local_loop_learn_the_same(fields: dict[str, Any], tmp_path: Path) -> None:
    local = trained(tmp_path / "local", **fields)

    on_trl = trained(tmp_path / "trl", backend="trl", **fields)

    for ours, theirs in zip(numbers(local.steps), numbers(on_trl.steps), strict=True):
        assert {name: theirs[name] for name in theirs if name not in UNMEASURED} == compared(ours)
        assert [theirs[name] for name in UNMEASURED] == [None, None]
    learned, other = weights(local.model), weights(on_trl.model)
    for name, weight in learned.items():
        torch.testing.assert_close(weight, other[name], rtol=1e-3, atol=1e-4, msg=name)


def test_the_passes_of_a_step_add_up_to_the_same(tmp_path: Path) -> None:
    local = trained(tmp_path / "local", score_fn=doubtful)

    on_trl = trained(
        tmp_path / "trl",
        backend="trl",
        score_fn=doubtful,
        trl={"per_device_train_batch_size": 4},
    )

    for ours, theirs in zip(local.steps, on_trl.steps, strict=True):
        assert theirs.loss == pytest.approx(ours.loss, abs=1e-5)
        assert theirs.grad_norm == pytest.approx(ours.grad_norm, rel=1e-3)


def test_rollouts_are_recorded_as_ever(tmp_path: Path) -> None:
    result = trained(tmp_path, backend="trl", score_fn=doubtful, num_steps=1)

    with Store.open(tmp_path / "store.db") as store:
        run = store.run(result.run_id)
        samples = list(run.samples())
        assert run.status == "completed"
    assert len(samples) == 12
    unjudged = [each for each in samples if each.reward is None]
    assert len(unjudged) == result.steps[0].invalid + sum(result.steps[0].failed.values()) > 2
    assert result.model_path is not None
    assert (result.model_path / "config.json").exists()
    assert result.curve_path.exists()


def resumed(folder: Path, **fields: Any) -> GRPOResult:
    session = TrainingSession(store=folder / "store.db", resume=True)
    return trained(folder, backend="trl", session=session, **fields)


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["whole", "lora"])
def test_a_training_that_is_done_already_still_has_what_it_learned(
    lora: Lora | None, tmp_path: Path
) -> None:
    done = trained(tmp_path, backend="trl", score_fn=dense, lora=lora)
    assert done.model_path is not None
    saved = (done.model_path / "model.safetensors").read_bytes()

    again = resumed(tmp_path, score_fn=dense, lora=lora)

    assert not again.interrupted
    assert same(weights(again.model), weights(done.model))
    assert (done.model_path / "model.safetensors").read_bytes() == saved


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    trained(folder, backend="trl")
    return folder


@pytest.mark.parametrize(
    ("damaged", "steps"),
    [("model.safetensors", 2), ("model.safetensors", 3), ("optimizer.pt", 3)],
    ids=["all done", "one to do", "optimiser"],
)
def test_a_damaged_checkpoint_is_named(
    damaged: str, steps: int, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    (kept,) = tmp_path.glob(f"out/checkpoints/step-*/checkpoint-*/{damaged}")
    kept.write_bytes(b"torn")

    with pytest.raises(TrainingError, match=r"step-000002: the checkpoint cannot be read") as found:
        resumed(tmp_path, num_steps=steps)

    assert "remove this folder" in str(found.value)


HELD: list[Stop] = []
"""Asked to stop by the first rollout of the second step, which then never ends."""


async def held(sample: Sample) -> float:
    if HELD and sample.metadata["training_step"] == 2:
        HELD[0].request()
        await asyncio.Event().wait()
    return looked_and_said(sample)


THREE: dict[str, Any] = {"num_steps": 3, "score_fn": held, "updates_per_step": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> GRPOResult:
    """Three steps that nothing stopped."""
    return trained(tmp_path_factory.mktemp("whole"), backend="trl", **THREE)


def test_going_on_from_a_checkpoint_is_the_same_to_the_bit_as_never_having_stopped(
    whole: GRPOResult, tmp_path: Path
) -> None:
    trained(tmp_path, backend="trl", **{**THREE, "num_steps": 2})

    cut = resumed(tmp_path, **THREE)

    assert numbers(cut.steps) == numbers(whole.steps)
    assert same(weights(cut.model), weights(whole.model))


@pytest.mark.parametrize("during_rollouts", [False, True], ids=["step", "rollouts"])
def test_a_stop_leaves_a_checkpoint_to_go_on_from(
    during_rollouts: bool, whole: GRPOResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[TrainingEvent] = []
    stop = Stop(grace_s=0)

    def seen(event: TrainingEvent) -> None:
        events.append(event)
        if isinstance(event, StepFinished) and not during_rollouts:
            stop.request()

    session = TrainingSession(store=tmp_path / "store.db", watch=seen, stop=stop)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "HELD", [stop])
        cut = trained(tmp_path, backend="trl", session=session, **THREE)

    assert cut.interrupted
    assert [each.step for each in events if isinstance(each, CheckpointSaved)] == [1]
    rest = resumed(tmp_path, **THREE)
    assert not rest.interrupted
    assert [step.reward for step in rest.steps] == [step.reward for step in whole.steps]
    assert steps_kept(tmp_path) == [step.model_dump() for step in rest.steps]


def test_a_step_without_differences_leaves_the_weights_as_they_are(tmp_path: Path) -> None:
    before = weights(lamp_model())

    result = trained(tmp_path, backend="trl", score_fn=lambda sample: 1.0)

    assert [step.updated for step in result.steps] == [False, False]
    assert [step.loss for step in result.steps] == [None, None]
    assert same(before, weights(result.model))


def test_a_gradient_that_is_no_number_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from trl import GRPOTrainer

    loss = GRPOTrainer._compute_loss
    monkeypatch.setattr(
        GRPOTrainer, "_compute_loss", lambda self, *given: loss(self, *given) * float("nan")
    )
    model = lamp_model()
    before = weights(model)
    session = TrainingSession(store=tmp_path / "store.db")

    with pytest.raises(TrainingError, match="the gradient is not finite"):
        grpo_train(
            lamp_config(tmp_path, backend="trl"),
            PROMPTS,
            looked_and_said,
            Lamp,
            model=model,
            session=session,
        )

    assert same(before, weights(model))


def test_a_training_that_is_cancelled_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def cancelled() -> GRPOResult:
        def seen(event: TrainingEvent) -> None:
            if isinstance(event, StepFinished):
                training.cancel()

        training = asyncio.ensure_future(
            grpo_train_async(
                lamp_config(tmp_path, backend="trl", num_steps=50),
                PROMPTS,
                looked_and_said,
                Lamp,
                model=lamp_model(),
                session=TrainingSession(store=tmp_path / "store.db", watch=seen),
            )
        )
        return await training

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())
    # Of a task whose exception was not retrieved, asyncio logs a traceback.
    gc.collect()
    assert caplog.messages == []
    with Store.open(tmp_path / "store.db") as store:
        assert store.run().status == "interrupted"


@pytest.mark.parametrize(
    ("package", "fields", "told"),
    [
        ("trl", {}, r"backend='trl' needs the package `trl`\n.*assay-eval\[trl\]"),
        ("vllm", {"trl": {"use_vllm": True}}, "trl.use_vllm needs the package `vllm`"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_loaded(
    package: str, fields: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "assay.train.trl_trainer.find_spec", lambda name: None if name == package else object()
    )

    with pytest.raises(ConfigError, match=told):
        trained(tmp_path, backend="trl", **fields)
    assert not (tmp_path / "out").exists()


def test_what_trl_itself_refuses_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise ValueError("this device has no bf16")

    monkeypatch.setattr("assay.train.trl_trainer.build_trainer_arguments", refused)

    with pytest.raises(ConfigError, match="TRL refuses the settings: this device has no bf16"):
        trained(tmp_path, backend="trl")
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "store.db").exists()
