"""After a training on TRL, a model and the process are as before, but for the weights."""

import random
from pathlib import Path
from typing import Any

import numpy
import pytest

from assay.providers.in_process import LocalModel
from assay.train.lora import Lora
from assay.train.preserve_state import preserve_model_state
from lamps import lamp_model, trained


def test_there_is_no_dropout_inside() -> None:
    local = lamp_model()
    attention = local.model.model.layers[0].self_attn
    attention.attention_dropout = 0.5

    with preserve_model_state(local):
        assert attention.attention_dropout == 0.0

    assert attention.attention_dropout == 0.5


def test_random_numbers_go_on_as_if_nothing_had_been() -> None:
    before = random.getstate(), str(numpy.random.get_state())

    with preserve_model_state(lamp_model()):
        random.seed(7)
        numpy.random.seed(7)

    assert (random.getstate(), str(numpy.random.get_state())) == before


def test_a_forward_of_the_models_own_is_kept() -> None:
    local = lamp_model()
    own = local.model.forward = lambda **_: None

    with preserve_model_state(local):
        local.model.forward = lambda **_: 1

    assert local.model.forward is own


def state(local: LocalModel) -> dict[str, Any]:
    model = local.model.get_base_model() if hasattr(local.model, "peft_config") else local.model
    return {
        "attributes": {name for name in vars(model) if "peft" not in name},
        "config": {**model.config.to_dict(), "dtype": None, "architectures": None},
        "generation": model.generation_config.to_dict(),
        "checkpointing": model.is_gradient_checkpointing,
        "hooks": len(model.get_input_embeddings()._forward_hooks),
        "training": model.training,
        "padding": local.tokenizer.pad_token,
    }


@pytest.mark.parametrize("lora", [None, Lora(rank=2)], ids=["whole", "lora"])
def test_what_trl_sets_for_itself_is_put_back(
    lora: Lora | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = lamp_model()
    local.model.eval()
    local.tokenizer.pad_token = None
    before = state(local)
    monkeypatch.setattr("lamps.lamp_model", lambda _: local)

    trained(
        tmp_path,
        backend="trl",
        lora=lora,
        num_steps=1,
        device="cpu",
        trl={"gradient_checkpointing": True, "bf16": True},
    )

    assert state(local) == before
