"""The settings of a fine-tuning: what is refused, and how the learning rate goes."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from assay.train import Lora, SFTConfig


def config(**settings: Any) -> SFTConfig:
    return SFTConfig(model_name="model", **settings)


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_steps": 0},
        {"learning_rate": 0},
        {"learning_rate": float("nan")},
        {"held_out": 1.0},
        {"max_length": 1},
        {"schedule": "sawtooth"},
        {"num_steps": 5, "warmup_steps": 5},
        {"lr": 1e-4},
    ],
)
def test_a_setting_that_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**wrong)


def rates(of: int, **settings: Any) -> list[float]:
    made = config(learning_rate=1.0, **settings)
    return [round(made.learning_rate_at(step, of=of), 3) for step in range(1, of + 1)]


def test_the_rate_rises_through_the_warm_up_and_then_follows_its_schedule() -> None:
    assert rates(4, schedule="constant", warmup_steps=2) == [0.333, 0.667, 1.0, 1.0]
    assert rates(4, schedule="linear") == [1.0, 0.75, 0.5, 0.25]
    assert rates(4, schedule="cosine") == [1.0, 0.854, 0.5, 0.146]


def test_where_it_is_written_does_not_decide_what_is_learned() -> None:
    elsewhere = config(output=Path("other"), checkpoint_every=7, device="cpu")

    assert elsewhere.describe() == config().describe()


@pytest.mark.parametrize("change", [{"seed": 1}, {"lora": Lora()}, {"num_steps": 9}])
def test_what_decides_what_is_learned_is_described(change: dict[str, Any]) -> None:
    assert config(**change).describe() != config().describe()


def test_under_a_constant_rate_a_training_may_go_on_for_longer() -> None:
    short, long = (config(schedule="constant", num_steps=steps) for steps in (5, 9))

    assert short.describe() == long.describe()


def test_the_number_of_steps_has_an_old_name() -> None:
    old, new = config(steps=5), config(num_steps=5)

    assert old == new
    assert old.steps == old.num_steps == 5
    assert new.model_copy(update={"steps": 9}).num_steps == 9
    with pytest.raises(ValidationError, match="pass only `num_steps`"):
        config(steps=5, num_steps=5)


def test_a_training_of_an_earlier_release_has_the_same_description() -> None:
    described = config(num_steps=5).describe()

    assert described["steps"] == 5
    assert "num_steps" not in described
