"""The weights that learn: what an update changes, and what is saved and restored of it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import TrainingError
from assay.providers.in_process import LocalModel
from assay.train import Lora
from assay.train.trained_weights import TrainedWeights
from tiny_models import tiny_local

IDS = torch.tensor([[5, 6, 7]])


def weights_for(lora: Lora | None = None, *, seed: int = 0) -> TrainedWeights:
    return TrainedWeights(tiny_local(seed=seed), lora=lora, weight_decay=0.0)


def loss_of(weights: TrainedWeights) -> Any:
    return weights.local.model(input_ids=IDS, labels=IDS).loss


def measured(weights: TrainedWeights) -> float:
    return float(loss_of(weights).detach())


def learn(weights: TrainedWeights) -> float:
    weights.zero_grad()
    loss_of(weights).backward()
    return weights.update(learning_rate=0.01, max_grad_norm=1.0)


def test_an_update_lowers_the_loss_it_came_from() -> None:
    weights = weights_for()
    before = measured(weights)

    norm = learn(weights)

    assert norm > 0
    assert measured(weights) < before


def test_added_matrices_learn_and_the_weights_stay() -> None:
    weights = weights_for(Lora(rank=2))
    frozen = {
        name: weight.clone()
        for name, weight in weights.local.model.named_parameters()
        if not weight.requires_grad
    }
    before = measured(weights)

    for _ in range(3):
        learn(weights)

    now = dict(weights.local.model.named_parameters())
    assert frozen
    assert all(torch.equal(now[name], weight) for name, weight in frozen.items())
    assert measured(weights) < before


def test_a_state_brings_back_what_comes_next() -> None:
    weights = weights_for()
    learn(weights)
    state = copy.deepcopy(weights.state())
    other = weights_for(seed=1)

    other.restore(state)

    for each in (weights, other):
        learn(each)
    assert measured(weights) == measured(other)


def test_the_state_of_another_model_is_refused() -> None:
    with pytest.raises(TrainingError, match="the weights of another model"):
        weights_for().restore(weights_for(Lora()).state())


def test_a_gradient_that_is_no_number_changes_nothing() -> None:
    weights = weights_for()
    before = measured(weights)
    weights.zero_grad()
    (loss_of(weights) * float("nan")).backward()

    with pytest.raises(TrainingError, match="the gradient is nan"):
        weights.update(learning_rate=0.01, max_grad_norm=1.0)

    assert measured(weights) == before


@pytest.mark.parametrize("lora", [None, Lora(rank=2)])
def test_the_saved_model_says_what_the_trained_one_says(
    lora: Lora | None, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    weights = weights_for(lora)
    learn(weights)

    weights.save_model(tmp_path)

    assert (tmp_path / "adapter").exists() == (lora is not None)
    assert capfd.readouterr() == ("", "")
    saved = LocalModel.load(tmp_path)
    with torch.no_grad():
        expected = weights.local.model(input_ids=IDS).logits
        torch.testing.assert_close(saved.model(input_ids=IDS).logits, expected)
