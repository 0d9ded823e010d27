"""Restores the state of a model and of the process that TRL changes, except the weights."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from assay.providers import LocalModel

# Settings that TRL and transformers overwrite in a model's configurations.
_PRESERVED_SETTINGS = ("use_cache", "pad_token_id", "bos_token_id", "eos_token_id")


@contextmanager
def preserve_model_state(local: LocalModel) -> Iterator[None]:
    """Disable dropout inside the context, and restore everything but the weights afterwards.

    Dropout would make logprobs incomparable with the recorded ones.
    """
    import numpy

    states = random.getstate(), numpy.random.get_state()
    try:
        with (
            disable_dropout(local.model),
            preserve_settings(local),
            _preserve_attributes(local.model),
        ):
            yield
    finally:
        random.setstate(states[0])
        numpy.random.set_state(states[1])


@contextmanager
def disable_dropout(model: Any) -> Iterator[None]:
    """Disable dropout in all modules inside the context, whatever their mode."""
    import torch

    rates: list[tuple[Any, str, float]] = []
    for module in model.modules():
        # Attention layers keep the rate as a float and pass it to a function.
        names = [name for name in vars(module) if "dropout" in name]
        if isinstance(module, torch.nn.Dropout):
            names.append("p")
        for name in names:
            rate = getattr(module, name)
            if isinstance(rate, float) and rate > 0:
                rates.append((module, name, rate))
                setattr(module, name, 0.0)
    try:
        yield
    finally:
        for module, name, rate in rates:
            setattr(module, name, rate)


class ModelSettings:
    """The settings that TRL changes while it trains, as they are now."""

    def __init__(self, local: LocalModel) -> None:
        model = local.model
        configs = (model.config, model.config.get_text_config(), model.generation_config)
        self._tokenizer, self._padding = local.tokenizer, local.tokenizer.pad_token
        self._found = [
            (each, name, getattr(each, name))
            for each in configs
            for name in _PRESERVED_SETTINGS
            if hasattr(each, name)
        ]

    def restore(self) -> None:
        """Set the model and its tokenizer back to these."""
        self._tokenizer.pad_token = self._padding
        for each, name, value in self._found:
            setattr(each, name, value)


@contextmanager
def preserve_settings(local: LocalModel) -> Iterator[None]:
    """Restore the settings afterwards: a model that is saved later must have its original ones."""
    before = ModelSettings(local)
    try:
        yield
    finally:
        before.restore()


@contextmanager
def _preserve_attributes(model: Any) -> Iterator[None]:
    # accelerate marks a prepared model, and would not prepare it for the next trainer.
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    models = list(dict.fromkeys((model, base)))
    found = [dict(vars(each)) for each in models]
    checkpointing, training = base.is_gradient_checkpointing, model.training
    # TRL registers hooks here for gradient checkpointing with frozen weights.
    embeddings = base.get_input_embeddings()
    hooks = embeddings._forward_hooks.copy()
    try:
        yield
    finally:
        if not checkpointing and base.is_gradient_checkpointing:
            base.gradient_checkpointing_disable()
        embeddings._forward_hooks = hooks
        model.train(training)
        for each, before in zip(models, found, strict=True):
            for name in vars(each).keys() - before.keys():
                delattr(each, name)
            if "forward" in before:
                each.forward = before["forward"]
