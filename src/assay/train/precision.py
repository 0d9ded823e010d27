"""The precision of weights in training, and whether an update changed them.

At common learning rates an update is smaller than the distance between two neighbouring bfloat16
numbers: weights that are kept in bfloat16 stay where they are.
"""

import warnings
from collections.abc import Iterable
from math import ceil
from typing import TYPE_CHECKING, Literal

from assay.providers import LocalModel, prepare_half_precision

if TYPE_CHECKING:
    from torch import Tensor

MIN_CHANGED_SHARE = 0.05
"""An update that changes a smaller share of the weights has almost no effect."""

# Weights of each tensor that are compared: comparing all of them would double the memory.
_SAMPLED_WEIGHTS = 4096


class WeightsUnchanged(UserWarning):
    """An update was too small to change the weights."""


def choose_load_dtype(dtype: Literal["float32", "bfloat16"], *, frozen: bool) -> str:
    """Return the dtype to load weights in: `dtype` for frozen ones, float32 for trained ones."""
    return dtype if frozen else "float32"


def set_compute_dtype(local: LocalModel, dtype: Literal["float32", "bfloat16"]) -> None:
    """Make a model with float32 weights compute in bfloat16, if `dtype` requests it."""
    import torch

    if dtype == "bfloat16" and next(local.model.parameters()).dtype == torch.float32:
        prepare_half_precision(torch.bfloat16, local.device)
        local.compute_dtype = torch.bfloat16


def cast_to_float32(local: LocalModel) -> None:
    """Convert all weights to float32, and keep computing in the dtype they were loaded in."""
    import torch

    low = {each.dtype for each in local.model.parameters()} - {torch.float32}
    if low:
        local.compute_dtype = local.compute_dtype or low.pop()
        local.model.float()


def cast_to_compute_dtype(local: LocalModel) -> None:
    """Round the weights to the compute dtype, which saves memory after the training."""
    if local.compute_dtype is not None:
        local.model.to(local.compute_dtype)
        local.compute_dtype = None


class ChangeProbe:
    """Measures which share of the weights an update changes, on a part of each tensor.

    Weights without a gradient, such as embeddings of tokens that do not occur, do not count.
    """

    def __init__(self, weights: Iterable["Tensor"]) -> None:
        self._weights = [(each, ceil(each.numel() / _SAMPLED_WEIGHTS)) for each in weights]
        self._before: Tensor | None = None

    def take(self) -> None:
        """Remember the weights before an update."""
        self._before = self._sample_tensors([weight.detach() for weight, _ in self._weights])

    def share(self) -> float | None:
        """Return the share that changed since `take`; None if no weight has a gradient."""
        import torch

        if self._before is None:
            return None
        now = self._sample_tensors([weight.detach() for weight, _ in self._weights])
        slopes = [
            torch.zeros_like(weight) if weight.grad is None else weight.grad
            for weight, _ in self._weights
        ]
        taught = self._sample_tensors(slopes) != 0
        count = int(taught.sum())
        return float(((now != self._before) & taught).sum()) / count if count else None

    def _sample_tensors(self, tensors: "list[Tensor]") -> "Tensor":
        import torch

        return torch.cat(
            [
                tensor.reshape(-1)[::stride]
                for tensor, (_, stride) in zip(tensors, self._weights, strict=True)
            ]
        )


def warn_if_unchanged(step: int, changed: float | None, learning_rate: float) -> bool:
    """Warn about a step that changed almost no weight, and return whether it did."""
    if changed is None or changed >= MIN_CHANGED_SHARE:
        return False
    warnings.warn(
        f"step {step} changed {changed:.2%} of the weights that have a gradient: "
        f"learning_rate={learning_rate:g} is too small for their precision".replace("%", " %"),
        WeightsUnchanged,
        stacklevel=2,
    )
    return True
