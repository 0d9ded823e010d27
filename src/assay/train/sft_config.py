"""The settings of a supervised fine-tuning, checked before anything is loaded."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, field_validator, model_validator

from .lora import Lora
from .metric_sinks import check_report_to
from .schedule import Schedule, compute_learning_rate


class SFTConfig(BaseModel):
    """The settings of a supervised fine-tuning."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model_name: str = Field(min_length=1)
    """A folder with a Hugging Face model and its tokenizer, or the id of one on the hub."""

    output: Path = Path("sft")
    """Folder for metrics, checkpoints and the trained model."""

    num_steps: int | None = Field(default=None, gt=0)
    """Updates of the weights. None: as many as `epochs` take."""

    epochs: int = Field(default=1, gt=0)
    """How often each sample is used, if `num_steps` is None."""

    tokens: Literal["recorded", "text"] = "recorded"
    """`recorded`: the sampled ids where they are recorded, for the model that sampled them.
    `text`: always the ids of the text under this model's tokenizer."""

    demonstrations: Literal["all", "last"] = "all"
    """Which answers of a conversation without a rollout are learned: all of them, or the last."""

    chat_template: Path | None = None
    """A file that replaces the tokenizer's chat template when text is tokenized."""

    min_score: FiniteFloat | None = None
    """Learn only from samples that scored at least this. Those without a score are left out."""

    max_length: int = Field(default=4096, gt=1)
    """Longer samples are left out and counted, never cut."""

    skip_unusable: bool = False
    """Exclude and count samples without usable tokens. False: raise for them."""

    held_out: FiniteFloat = Field(default=0.0, ge=0, lt=1)
    """The share of the prompts whose samples are evaluated instead of trained on."""

    eval_every: int = Field(default=50, gt=0)
    """Steps from one measurement of the held-out samples to the next; also first and last."""

    patience: int | None = Field(default=None, gt=0)
    """Stop after this many measurements in a row without a lower loss, and keep the model with the
    lowest one in `best/` of the output folder. None: neither."""

    batch_tokens: int = Field(default=16384, gt=0)
    """Tokens of one update, context included; a longer sample is an update of its own."""

    micro_batch_tokens: int = Field(default=8192, gt=0)
    """Tokens, padding included, in one pass; gradients add up over the passes of an update."""

    micro_batch_bytes: int = Field(default=4 * 2**30, gt=0)
    """Memory of one pass for logits and derived tensors: tokens times vocabulary. A single
    sample may take more."""

    gradient_checkpointing: bool | None = None
    """Compute layers again in the backward pass instead of remembering them. None: for models of
    500 million weights or more."""

    learning_rate: FiniteFloat = Field(default=1e-5, gt=0)
    schedule: Schedule = "cosine"
    warmup_steps: int = Field(default=0, ge=0)
    weight_decay: FiniteFloat = Field(default=0.0, ge=0)
    max_grad_norm: FiniteFloat = Field(default=1.0, gt=0)
    lora: Lora | None = None
    seed: int = 0
    device: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    checkpoint_every: int = Field(default=100, gt=0)
    """Steps from one checkpoint to the next. The last step always has one."""

    keep_checkpoints: int = Field(default=2, gt=0)

    report_to: tuple[Any, ...] = Field(default=(), exclude=True)
    """Trackers of the metrics on this machine: `tensorboard`, `wandb`, `mlflow`, `trackio`, the
    names of plug-ins, or objects with `log(step, metrics)` and `close()`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_old_name(cls, given: Any) -> Any:
        return rename_steps(given) if isinstance(given, dict) else given

    @field_validator("report_to", mode="before")
    @classmethod
    def _check_report_to(cls, value: Any) -> tuple[Any, ...]:
        return check_report_to(value)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.num_steps is not None and self.warmup_steps >= self.num_steps:
            raise ValueError(
                f"{self.warmup_steps} warm-up steps leave none of {self.num_steps} steps to train "
                "in"
            )
        if self.patience is not None and not self.held_out:
            raise ValueError("`patience` has no effect without `held_out`")
        return self

    @property
    def steps(self) -> int | None:
        """`num_steps`, by its name in release 0.2.0."""
        return self.num_steps

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy the settings, as in pydantic; `update` may have the old name too."""
        return super().model_copy(update=rename_steps(update or {}), deep=deep)

    def learning_rate_at(self, step: int, *, of: int) -> float:
        """The rate of a step; steps count from 1."""
        return compute_learning_rate(
            step,
            of=of,
            highest=self.learning_rate,
            schedule=self.schedule,
            warmup_steps=self.warmup_steps,
        )

    def describe(self) -> dict[str, Any]:
        """Return the settings that must not change on a resume, as plain values."""
        apart = {"output", "checkpoint_every", "keep_checkpoints", "device", "model_name"}
        apart.add("patience")
        # The path may change: the tokens that the template produces are compared instead.
        apart.add("chat_template")
        if self.schedule == "constant":
            apart |= {"num_steps", "epochs"}
        settings = self.model_dump(mode="json", exclude=apart)
        # Output folders have the old name: those of earlier releases must be resumable.
        return {"steps" if name == "num_steps" else name: settings[name] for name in settings}


def rename_steps(given: Mapping[str, Any]) -> dict[str, Any]:
    """Replace the old name `steps` by `num_steps`. Raises `ValueError` if both are given."""
    if {"steps", "num_steps"} <= given.keys():
        raise ValueError("`steps` is the old name of `num_steps`; pass only `num_steps`")
    return {"num_steps" if name == "steps" else name: given[name] for name in given}
