"""LoRA: what is added to a model, and what is said without the package for it."""

import sys

import pytest

from assay.errors import MissingExtra
from assay.train.lora import Lora, add_lora
from word_models import word_model


def test_only_the_chosen_layers_get_matrices_and_only_these_are_trained() -> None:
    model = add_lora(word_model(["red"]).model, Lora(rank=3, target_modules=("q_proj",)))

    trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
    assert len(trained) == 2 * 2
    assert all("q_proj.lora_" in name for name in trained)
    assert all(3 in each.shape for each in trained.values())


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    model = word_model(["red"]).model
    monkeypatch.setitem(sys.modules, "peft", None)

    with pytest.raises(MissingExtra, match=r"needs the package `peft`(?s:.*)assay-eval\[train\]"):
        add_lora(model, Lora())
