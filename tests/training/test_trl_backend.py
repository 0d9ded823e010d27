"""`backend="trl"`: the same training as the local loop's, on TRL's trainer."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError, TrainingError
from assay.evaluation import Stop
from assay.models import EvaluateResult, Sample
from assay.record import Store
from assay.training.events import RolledOut, Saved, Stepped, TrainingEvent
from assay.training.grpo import GRPOResult, grpo_train, grpo_train_async
from assay.training.lora import Lora
from assay.training.session import TrainingSession
from training.lamps import (
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    numbers,
    same,
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


def test_two_trainings_are_equal_to_the_bit(tmp_path: Path) -> None:
    one, other = (trained(tmp_path / name, backend="trl") for name in ("one", "other"))

    assert numbers(one.steps) == numbers(other.steps)
    assert same(weights(one.model), weights(other.model))


def test_going_on_from_a_checkpoint_is_the_same_as_never_having_stopped(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"backend": "trl", "updates_per_step": 2}
    whole = trained(tmp_path / "whole", num_steps=3, **fields)

    trained(tmp_path / "cut", num_steps=2, **fields)
    session = TrainingSession(store=tmp_path / "cut" / "store.db", resume=True)
    cut = trained(tmp_path / "cut", num_steps=3, session=session, **fields)

    assert numbers(cut.steps) == numbers(whole.steps)
    assert same(weights(cut.model), weights(whole.model))


class Watching:
    """Sees what happens, and stops a training after a step or a rollout."""

    def __init__(self, folder: Path, *, after: type[TrainingEvent]) -> None:
        self.events: list[TrainingEvent] = []
        self._after = after
        self.session = TrainingSession(
            store=folder / "store.db", watch=self._seen, stop=Stop(grace_s=0)
        )

    def _seen(self, event: TrainingEvent) -> None:
        self.events.append(event)
        steps = sum(isinstance(each, Stepped) for each in self.events)
        if isinstance(event, self._after) and steps == 1:
            self.session.stop.request()


@pytest.mark.parametrize("during_rollouts", [False, True], ids=["step", "rollouts"])
def test_a_stop_leaves_a_checkpoint_to_go_on_from(during_rollouts: bool, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", backend="trl", num_steps=3)
    watching = Watching(tmp_path / "cut", after=RolledOut if during_rollouts else Stepped)

    cut = trained(tmp_path / "cut", backend="trl", num_steps=3, session=watching.session)

    assert cut.interrupted
    assert [each.step for each in watching.events if isinstance(each, Saved)] == [1]
    session = TrainingSession(store=tmp_path / "cut" / "store.db", resume=True)
    rest = trained(tmp_path / "cut", backend="trl", num_steps=3, session=session)
    assert not rest.interrupted
    assert [step.reward for step in rest.steps] == [step.reward for step in whole.steps]


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


def test_the_model_and_the_process_are_as_before_but_for_what_was_learned(tmp_path: Path) -> None:
    model = lamp_model()
    attention = model.model.model.layers[0].self_attn
    attention.attention_dropout = 0.5
    state = random.getstate()
    rates: list[float] = []

    def noted(sample: Sample) -> float:
        rates.append(attention.attention_dropout)
        return dense(sample)

    grpo_train(
        lamp_config(tmp_path, backend="trl", num_steps=1),
        PROMPTS,
        noted,
        Lamp,
        model=model,
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    assert set(rates) == {0.0}
    assert attention.attention_dropout == 0.5
    assert random.getstate() == state
    assert not model.model.training
    assert "forward" not in vars(model.model)


def test_a_training_that_is_cancelled_ends(tmp_path: Path) -> None:
    async def cancelled() -> GRPOResult:
        def seen(event: TrainingEvent) -> None:
            if isinstance(event, Stepped):
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
    with Store.open(tmp_path / "store.db") as store:
        assert store.run().status == "interrupted"


@pytest.mark.parametrize(
    ("package", "fields", "told"),
    [
        ("trl", {}, r"backend='trl' needs the package `trl`\n.*assay\[trl\]"),
        ("vllm", {"trl": {"use_vllm": True}}, "trl.use_vllm needs the package `vllm`"),
    ],
)
def test_a_missing_package_is_named_before_anything_is_loaded(
    package: str, fields: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "assay.training.trl_trainer.find_spec", lambda name: None if name == package else object()
    )

    with pytest.raises(ConfigError, match=told):
        trained(tmp_path, backend="trl", **fields)
    assert not (tmp_path / "out").exists()
