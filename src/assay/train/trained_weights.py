"""The trained weights of a model: their precision, their optimiser, and what an update changed.

At common learning rates an update is smaller than the distance between two neighbouring bfloat16
numbers: weights that are kept in bfloat16 stay where they are.
"""

import copy
import warnings
from collections.abc import Iterable
from math import ceil, isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from assay.errors import TrainingError
from assay.providers import LocalModel, hide_progress_bars, prepare_half_precision

from .lora import Lora, add_lora

if TYPE_CHECKING:
    from torch import Tensor

MIN_CHANGED_SHARE = 0.05
"""An update that changes a smaller share of the weights has almost no effect."""

# Weights of each tensor that are compared: comparing all of them would double the memory.
_SAMPLED_WEIGHTS = 4096


class TrainedWeights:
    """The trained weights of a model: all of them, or added LoRA matrices."""

    def __init__(self, local: LocalModel, *, lora: Lora | None, weight_decay: float) -> None:
        import torch

        self.local = local
        self._added = lora is not None
        if lora is not None:
            # Added matrices are float32, whatever the dtype of the frozen weights.
            local.model = add_lora(local.model, lora)
        else:
            cast_to_float32(local)
        self.trained = {
            name: weight for name, weight in local.model.named_parameters() if weight.requires_grad
        }
        self.changed: float | None = None
        """The share of the weights that the last update changed; None where none has a gradient."""

        self.probe = ChangeProbe(self.trained.values())
        self.optimizer = torch.optim.AdamW(
            self.trained.values(),
            weight_decay=weight_decay,
            fused=local.device.type in ("cpu", "cuda"),
        )

    def zero_grad(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)

    def update(self, *, learning_rate: float, max_grad_norm: float) -> float:
        """Apply the accumulated gradients, and return their norm before clipping."""
        import torch

        norm = float(torch.nn.utils.clip_grad_norm_(self.trained.values(), max_grad_norm))
        # Applied, such a gradient would ruin every weight.
        if not isfinite(norm):
            raise TrainingError(
                f"the gradient is {norm}, so the weights were not updated",
                hint="lower learning_rate; checkpoints of earlier steps are kept",
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.probe.take()
        self.optimizer.step()
        self.changed = self.probe.share()
        return norm

    def state(self) -> dict[str, Any]:
        """Return everything that an update changes or depends on."""
        import torch

        on_cuda = self.local.device.type == "cuda"
        return {
            "weights": {name: weight.detach() for name, weight in self.trained.items()},
            "optimizer": self.optimizer.state_dict(),
            "random": torch.get_rng_state(),
            "random_cuda": torch.cuda.get_rng_state_all() if on_cuda else [],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore a state. Raises `TrainingError` for the state of another model."""
        import torch

        weights = state["weights"]
        if {name: weight.shape for name, weight in weights.items()} != {
            name: weight.shape for name, weight in self.trained.items()
        }:
            raise TrainingError("the checkpoint contains the weights of another model")
        # In place: the optimiser refers to these very tensors.
        with torch.no_grad():
            for name, weight in self.trained.items():
                weight.copy_(weights[name])
        self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["random"].cpu())
        if state["random_cuda"]:
            torch.cuda.set_rng_state_all([each.cpu() for each in state["random_cuda"]])

    def save_model(self, folder: Path) -> None:
        """Write model and tokenizer as a folder that `LocalModel.load` reads.

        Added matrices are merged into the weights, and also kept alone under `adapter`.
        """
        with hide_progress_bars():
            if self._added:
                self.local.model.save_pretrained(folder / "adapter")
            self.merge().save_pretrained(folder)
            self.local.tokenizer.save_pretrained(folder)

    def merge(self) -> Any:
        """Return the model; added matrices are merged into a copy of it."""
        if not self._added:
            return self.local.model
        # Merged in float32: small changes would be lost in the dtype of the frozen weights.
        return copy.deepcopy(self.local.model).float().merge_and_unload()


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
