"""The trained weights of a model and their optimiser: updated, saved and restored."""

import copy
from pathlib import Path
from typing import Any

from assay.errors import TrainingError
from assay.providers import LocalModel, hide_progress_bars

from .lora import Lora, add_lora
from .precision import ChangeProbe, cast_to_float32


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
        if norm != norm or norm == float("inf"):
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
        model = self.local.model
        with hide_progress_bars():
            if self._added:
                model.save_pretrained(folder / "adapter")
                # Merged in float32: small changes would be lost in the dtype of the frozen weights.
                model = copy.deepcopy(model).float().merge_and_unload()
            model.save_pretrained(folder)
            self.local.tokenizer.save_pretrained(folder)
