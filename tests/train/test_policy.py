"""The policy: its logprobs are the recorded ones, and an update is the same however it is cut."""

from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import TrainingError
from assay.train.batches import TrainedRollout, build_micro_batch, compute_step_size
from assay.train.lora import Lora
from assay.train.policy import Policy, compute_token_logprobs, fix_seed
from policies import TEMPERATURE, config, gradient, sampled
from word_models import word_model


def test_recomputed_logprobs_are_those_that_were_recorded() -> None:
    model = word_model(["red"], bias=2.0)
    rollouts = sampled(model)
    settings = config()
    batch = build_micro_batch(
        rollouts, compute_step_size(rollouts, settings), settings, device="cpu"
    )

    with torch.no_grad():
        logprobs_N, entropy_N = compute_token_logprobs(model.model, batch, TEMPERATURE)
        cold_N, _ = compute_token_logprobs(model.model, batch, 1.0)

    assert float((logprobs_N - batch.recorded_N).abs().max()) < 1e-4
    assert float((cold_N - batch.recorded_N).abs().max()) > 0.1  # a wrong temperature shows
    assert bool((entropy_N > 0).all())


@pytest.mark.parametrize("fields", [{}, {"importance_level": "sequence"}, {"beta": 0.5}])
def test_gradients_add_up_to_the_same_over_any_number_of_passes(fields: dict[str, Any]) -> None:
    rollouts = sampled(word_model(["red"]))

    whole = gradient(Policy(word_model(["red"]), config(**fields)), rollouts)
    cut = gradient(Policy(word_model(["red"]), config(micro_batch_tokens=8, **fields)), rollouts)

    assert float(whole.abs().max()) > 0
    assert torch.allclose(whole, cut, atol=1e-6)


def cut_into_branches(rollout: TrainedRollout) -> TrainedRollout:
    """The same sampled tokens, each in a branch of its own."""
    branches = []
    for part in rollout.parts:
        for place in (at for at, counts in enumerate(part.loss_mask) if counts):
            mask = [0.0] * place + [1.0]
            known = part.rollout_log_probs
            update = {
                "tokens": part.tokens[: place + 1],
                "loss_mask": mask,
                "rollout_log_probs": None if known is None else known[: place + 1],
            }
            branches.append(part.model_copy(update=update))
    return TrainedRollout(tuple(branches), rollout.advantage)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
def test_a_rollout_weighs_the_same_however_many_branches_it_has(loss_type: str, level: str) -> None:
    rollouts = sampled(word_model(["red"]))
    settings = config(loss_type=loss_type, importance_level=level)
    # Only some of them fork: counted as rollouts, branches would outweigh the others.
    forked = [*map(cut_into_branches, rollouts[:2]), *rollouts[2:]]
    assert max(len(rollout.parts) for rollout in forked) > 2

    whole = Policy(word_model(["red"]), settings)
    branched = Policy(word_model(["red"]), settings)
    one, other = gradient(whole, rollouts), gradient(branched, forked)

    assert float(one.abs().max()) > 0
    assert torch.allclose(one, other, atol=1e-6)


def test_the_direction_is_towards_what_did_better() -> None:
    model = word_model(["red"])
    rollouts = sampled(model)
    settings = config()
    policy = Policy(model, settings)
    batch = build_micro_batch(
        rollouts, compute_step_size(rollouts, settings), settings, device="cpu"
    )
    with torch.no_grad():
        before_N, _ = compute_token_logprobs(model.model, batch, TEMPERATURE)

    policy.update(rollouts, learning_rate=1e-3)

    with torch.no_grad():
        after_N, _ = compute_token_logprobs(model.model, batch, TEMPERATURE)
    assert float(((after_N - before_N) * batch.advantages_N * batch.scale_N).sum()) > 0


def test_several_updates_move_the_ratio_and_are_clipped() -> None:
    rollouts = sampled(word_model(["red"]))

    once = Policy(word_model(["red"]), config()).update(rollouts, learning_rate=0.05)
    often = Policy(word_model(["red"]), config(updates_per_step=6)).update(
        rollouts, learning_rate=0.05
    )

    assert once.sums.ratio_max == pytest.approx(1.0)
    assert once.sums.clipped == 0
    assert often.sums.ratio_max > 1.2
    assert often.sums.clipped > 0
    assert often.sums.tokens == 6 * once.sums.tokens
    assert often.loss == pytest.approx(once.loss, abs=1e-6)


@pytest.mark.parametrize("lora", [None, Lora(rank=2)])
def test_the_reference_stays_the_model_before_training(lora: Lora | None) -> None:
    model = word_model(["red"])
    rollouts = sampled(model)
    with fix_seed(0):
        policy = Policy(model, config(measure_kl=True, lora=lora))

    first, second = (policy.update(rollouts, learning_rate=0.05).sums.kl for _ in range(2))

    assert first == 0.0
    assert second is not None
    assert second > 0


def test_with_lora_only_added_matrices_are_trained_and_saved_merged(tmp_path: Path) -> None:
    model = word_model(["red"])
    rollouts = sampled(model)
    before = {name: each.detach().clone() for name, each in model.model.named_parameters()}
    with fix_seed(0):
        policy = Policy(model, config(lora=Lora(rank=2)))

    policy.update(rollouts, learning_rate=0.05)
    policy.weights.save_model(tmp_path)

    assert all("lora_" in name for name in policy.weights.trained)
    frozen = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): weight
        for name, weight in model.model.named_parameters()
        if "lora_" not in name
    }
    assert all(bool((frozen[name] == before[name]).all()) for name in before)
    assert (tmp_path / "adapter" / "adapter_model.safetensors").is_file()
    assert (tmp_path / "model.safetensors").is_file()


def test_a_layer_that_is_not_there_cannot_get_matrices() -> None:
    with pytest.raises(ValueError, match="no_such_layer"):
        Policy(word_model(["red"]), config(lora=Lora(target_modules=("no_such_layer",))))


def test_what_is_not_finite_is_refused_and_changes_nothing() -> None:
    model = word_model(["red"])
    (first, *rest) = sampled(model)
    policy = Policy(model, config())
    before = [each.detach().clone() for each in policy.weights.trained.values()]

    with pytest.raises(TrainingError, match="the gradient is nan"):
        policy.update([TrainedRollout(first.parts, float("nan")), *rest], learning_rate=0.1)

    after = policy.weights.trained.values()
    assert all(bool((one == other).all()) for one, other in zip(before, after, strict=True))


def test_a_seed_holds_inside_only() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)

    with fix_seed(9):
        one = torch.rand(1)
    with fix_seed(9):
        other = torch.rand(1)

    assert one == other
    assert torch.rand(1) == expected


def test_weights_that_matter_later_are_known_again() -> None:
    assert Policy(word_model(["red"]), config()).digest_initial_weights() is None
    digests = {
        Policy(word_model(["red"], seed=seed), config(beta=0.1)).digest_initial_weights()
        for seed in (0, 0, 1)
    }
    assert len(digests) == 2
