"""The weights that learn: what an update changes, and what is saved and restored of it."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import TrainingError
from assay.providers.in_process import LocalModel, Sampling
from assay.train import (
    GRPOConfig,
    Lora,
    SFTConfig,
    TrainingSession,
    grpo_train,
    sft_train,
)
from assay.train.trained_weights import TrainedWeights, WeightsUnchanged, cast_to_float32
from lamps import trained, weights
from tiny_models import tiny_local, tiny_model, tiny_weights

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


def dtypes(model: LocalModel) -> set[Any]:
    return {weight.dtype for weight in model.model.parameters()}


def share_changed(before: dict[str, Any], after: dict[str, Any]) -> float:
    changed: int = sum(int((before[name] != after[name]).sum()) for name in before)
    total: int = sum(weight.numel() for weight in before.values())
    return changed / total


def spread(sample: Any) -> int:
    """Differs from one answer to the next."""
    return len(sample.response)


def config_for(folder: Path, model: Path, **fields: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "model_name": str(model),
        "num_steps": 2,
        "output": folder / "out",
        "prompts_per_step": 2,
        "group_size": 4,
        "max_tokens": 4,
        "dtype": "bfloat16",
    }
    return GRPOConfig(**{**settings, **fields})


def test_at_the_default_rate_weights_move_although_bfloat16_is_computed_in(
    tmp_path: Path,
) -> None:
    folder = tiny_model(tmp_path)
    before = weights(LocalModel.load(folder))

    result = grpo_train(
        config_for(tmp_path, folder),
        [{"prompt": "Hello?"}, {"prompt": "what"}],
        spread,
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    assert all(step.updated for step in result.steps)
    assert dtypes(result.model) == {torch.float32}
    assert result.model.compute_dtype is torch.bfloat16
    # The embeddings of tokens that do not occur have no gradient.
    assert share_changed(before, weights(result.model)) > 0.3
    assert all((step.weights_changed or 0.0) > 0.9 for step in result.steps)
    assert result.model_path is not None
    assert share_changed(before, weights(LocalModel.load(result.model_path))) > 0.3


def test_what_was_sampled_in_bfloat16_is_recomputed_in_bfloat16(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=1, dtype="bfloat16")

    assert result.steps[0].importance_weight == pytest.approx(1.0, abs=0.02)


def test_optimizer_state_and_checkpoint_are_float32() -> None:
    local = LocalModel(tiny_weights().bfloat16(), tiny_local().tokenizer, threads=1)
    trained_weights = TrainedWeights(local, lora=None, weight_decay=0.0)
    ids = torch.tensor([[5, 6, 7]])

    with local.autocast():
        loss = local.model(input_ids=ids, labels=ids).loss
    loss.backward()
    trained_weights.update(learning_rate=1e-6, max_grad_norm=1.0)

    assert local.compute_dtype is torch.bfloat16
    state = trained_weights.state()
    moments = [each["exp_avg"] for each in state["optimizer"]["state"].values()]
    assert {each.dtype for each in (*state["weights"].values(), *moments)} == {torch.float32}


def test_a_model_that_is_held_in_float32_computes_in_what_it_was_loaded_in() -> None:
    local = LocalModel(tiny_weights().bfloat16(), tiny_local().tokenizer, threads=1)
    before = local.generate([[5, 6]], Sampling(max_tokens=3), seeds=[1])

    cast_to_float32(local)

    assert dtypes(local) == {torch.float32}
    with local.autocast(), torch.no_grad():
        assert local.model(input_ids=torch.tensor([[5, 6]])).logits.dtype is torch.bfloat16
    after = local.generate([[5, 6]], Sampling(max_tokens=3), seeds=[1])
    assert after[0].logprobs == pytest.approx(before[0].logprobs, abs=0.1)


def test_added_matrices_are_float32_beside_frozen_bfloat16_and_merged_without_loss(
    tmp_path: Path,
) -> None:
    folder = tiny_model(tmp_path)
    before = weights(LocalModel.load(folder, dtype="bfloat16"))

    result = grpo_train(
        config_for(tmp_path, folder, lora=Lora(rank=2), learning_rate=1e-4, num_steps=2),
        [{"prompt": "Hello?"}, {"prompt": "what"}],
        spread,
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    named = dict(result.model.model.named_parameters())
    assert {each.dtype for name, each in named.items() if "lora_" in name} == {torch.float32}
    assert {each.dtype for name, each in named.items() if "lora_" not in name} == {torch.bfloat16}
    assert result.model_path is not None
    merged = weights(LocalModel.load(result.model_path))
    linear = "model.layers.0.mlp.up_proj.weight"
    assert share_changed({linear: before[linear].float()}, {linear: merged[linear]}) > 0.9


def test_fine_tuning_in_bfloat16_moves_the_weights_too(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    before = weights(LocalModel.load(folder))
    config = SFTConfig(
        model_name=str(folder),
        output=tmp_path / "out",
        num_steps=2,
        learning_rate=1e-6,
        dtype="bfloat16",
    )
    said = [{"role": "user", "content": "what"}, {"role": "assistant", "content": "hello"}]

    result = sft_train(config, [{"messages": said}])

    assert result.model_path is not None
    assert share_changed(before, weights(LocalModel.load(result.model_path))) > 0.3
    assert all((step.weights_changed or 0.0) > 0.9 for step in result.steps)


def test_a_step_that_moves_almost_nothing_is_warned_about_once(tmp_path: Path) -> None:
    with pytest.warns(
        WeightsUnchanged, match=r"step 1 changed \d.\d\d % .*learning_rate=1e-12"
    ) as told:
        result = trained(tmp_path, num_steps=2, learning_rate=1e-12)

    assert len(told) == 1
    # A bias of 0 moves at any rate.
    assert all(0 < (step.weights_changed or 0.0) < 0.05 for step in result.steps)


def test_trl_keeps_float32_and_measures_the_change(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=1, backend="trl", dtype="bfloat16")

    (step,) = result.steps
    assert dtypes(result.model) == {torch.float32}
    assert step.weights_changed is not None
    assert step.weights_changed > 0.9
