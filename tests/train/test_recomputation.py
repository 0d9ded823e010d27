"""Gradient checkpointing: the same gradients with less remembered, and nothing left behind."""

from typing import Any

import pytest
import torch

from assay.errors import ConfigError
from assay.providers.in_process import LocalModel
from assay.train import Lora, SFTConfig, sft_train
from assay.train.policy import Policy, fix_seed
from assay.train.recomputation import recompute_layers, should_recompute
from policies import config, gradient, sampled
from tiny_models import tiny_local
from word_models import word_model


@pytest.mark.parametrize("lora", [None, Lora(rank=2)])
def test_layers_that_are_computed_again_give_the_same_gradients(lora: Lora | None) -> None:
    rollouts = sampled(word_model(["red"]))

    def gradients(**fields: Any) -> Any:
        with fix_seed(0):
            policy = Policy(word_model(["red"]), config(lora=lora, **fields))
        return gradient(policy, rollouts)

    whole, again = gradients(), gradients(gradient_checkpointing=True)

    assert float(whole.abs().max()) > 0
    assert torch.allclose(whole, again, atol=1e-6)


def test_less_is_remembered_and_the_model_is_as_it_was() -> None:
    model = tiny_local().model.eval()

    def remembered() -> int:
        sizes: list[int] = []

        def keep(tensor: Any) -> Any:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            model(input_ids=torch.zeros(1, 16, dtype=torch.long), use_cache=False)
        return sum(sizes)

    before = remembered()
    with recompute_layers(model):
        inside = remembered()
        assert not any(each.training for each in model.modules() if not list(each.children()))

    assert inside < before / 2
    assert remembered() == before
    assert not any(each.training for each in model.modules())
    assert not model.is_gradient_checkpointing


def test_a_small_model_remembers_unless_asked() -> None:
    local = tiny_local()

    assert not should_recompute(local, None)
    assert should_recompute(local, True)


def test_a_model_that_cannot_is_refused_only_when_asked() -> None:
    class Unsupported:
        supports_gradient_checkpointing = False

        def __init__(self, model: Any) -> None:
            self.parameters, self.modules = model.parameters, model.modules

    local = tiny_local()
    local.model = Unsupported(local.model)

    assert not should_recompute(local, None)
    with pytest.raises(ConfigError, match="Unsupported does not support gradient checkpointing"):
        should_recompute(local, True)


def test_fine_tuning_takes_it_too(tmp_path: Any) -> None:
    said = [{"role": "user", "content": "what"}, {"role": "assistant", "content": "hello"}]

    def losses(name: str, **fields: Any) -> list[float]:
        model: LocalModel = tiny_local()
        settings = SFTConfig(
            model_name="tiny", output=tmp_path / name, num_steps=2, learning_rate=1e-2, **fields
        )
        result = sft_train(settings, [{"messages": said}], model=model)
        assert not model.model.is_gradient_checkpointing
        return [step.loss for step in result.steps]

    assert losses("again", gradient_checkpointing=True) == pytest.approx(losses("whole"), abs=1e-5)
