"""Training small added matrices instead of the weights themselves, with the package `peft`."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from assay.errors import MissingExtra


class Lora(BaseModel):
    """Train small added matrices instead of the weights. Needs the package `peft`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=8, gt=0)
    alpha: FiniteFloat = Field(default=16.0, gt=0)
    target_modules: tuple[str, ...] | None = None
    """Names of the layers that get them. None: every linear layer but the last."""


def add_lora(model: Any, lora: Lora) -> Any:
    """Return the model with added LoRA matrices; its own weights are frozen."""
    try:
        import peft
    except ImportError as error:
        raise MissingExtra.build("train", by="training with `lora`", package="peft") from error
    targets = "all-linear" if lora.target_modules is None else list(lora.target_modules)
    return peft.get_peft_model(
        model,
        peft.LoraConfig(
            r=lora.rank,
            lora_alpha=lora.alpha,
            target_modules=targets,
            task_type="CAUSAL_LM",
        ),
    )
