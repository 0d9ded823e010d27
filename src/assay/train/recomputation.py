"""Gradient checkpointing: layers are recomputed in the backward pass to save memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from assay.errors import ConfigError
from assay.providers import SMALL_MODEL_PARAMETERS, LocalModel

from .preserve_state import disable_dropout


def should_recompute(local: LocalModel, asked: bool | None) -> bool:
    """Whether to recompute layers: as requested, else for large models.

    Raises `ConfigError` for a request that the model does not support.
    """
    # Some models claim support, but have no layers of the kind that recomputes.
    can = getattr(local.model, "supports_gradient_checkpointing", False) and any(
        True for _ in _find_checkpointing_layers(local.model)
    )
    if asked and not can:
        raise ConfigError(
            f"{type(local.model).__name__} does not support gradient checkpointing",
            hint="set gradient_checkpointing=False, and a smaller micro_batch_tokens",
        )
    if asked is not None:
        return asked
    size = sum(each.numel() for each in local.model.parameters())
    return bool(can) and size >= SMALL_MODEL_PARAMETERS


@contextmanager
def recompute_layers(model: Any) -> Iterator[None]:
    """Make passes with gradients keep only the input of each layer.

    Layers recompute in training mode only. Other modules stay in evaluation mode and dropout is
    disabled: logprobs must stay comparable with the recorded ones.
    """
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    # Remembered for each layer: a caller may have only some of them in training mode.
    layers = [(layer, layer.training) for layer in _find_checkpointing_layers(base)]
    with disable_dropout(base):
        base.gradient_checkpointing_enable({"use_reentrant": False})
        for layer, _ in layers:
            layer.training = True
        try:
            yield
        finally:
            for layer, training in layers:
                layer.training = training
            base.gradient_checkpointing_disable()


def _find_checkpointing_layers(model: Any) -> Iterator[Any]:
    from transformers.modeling_layers import GradientCheckpointingLayer

    return (each for each in model.modules() if isinstance(each, GradientCheckpointingLayer))
