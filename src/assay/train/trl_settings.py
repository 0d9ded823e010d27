"""Settings for TRL only, and the common settings that TRL does not support."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

if TYPE_CHECKING:
    from .grpo_config import GRPOConfig


class TrlSettings(BaseModel):
    """Settings of TRL under TRL's names. Omitted ones keep TRL's default.

    The loss is configured in `GRPOConfig`, for both backends alike.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    per_device_train_batch_size: int | None = Field(default=None, gt=0)
    """Rollouts in one pass on one device. None: all that a device has of a step."""

    gradient_checkpointing: bool = False
    bf16: bool = False
    """Mixed precision."""

    use_vllm: bool = False
    """Sample with vLLM, which TRL keeps at the present weights."""

    vllm_mode: Literal["colocate", "server"] | None = None
    vllm_server_base_url: str | None = None
    vllm_server_timeout: FiniteFloat | None = Field(default=None, gt=0)
    vllm_group_port: int | None = None
    vllm_gpu_memory_utilization: FiniteFloat | None = Field(default=None, gt=0, le=1)
    vllm_max_model_length: int | None = Field(default=None, gt=0)
    vllm_enable_sleep_mode: bool | None = None
    vllm_model_impl: Literal["vllm", "transformers"] | None = None
    delta: FiniteFloat | None = Field(default=None, gt=1)
    """A second bound of the ratio, for tokens that are to become less likely."""

    top_entropy_quantile: FiniteFloat | None = Field(default=None, ge=0, le=1)
    """Learn from this share of the tokens only: those with the most entropy."""


def list_trl_conflicts(config: "GRPOConfig") -> Iterator[str]:
    """One line for each setting that TRL's trainer cannot honour."""
    if config.zero_variance == "resample":
        yield "zero_variance='resample': TRL's steps have a fixed size; 'drop' is honoured"
    if config.measure_kl and config.beta == 0:
        yield "measure_kl: TRL measures the divergence only where `beta` is above 0"
    if config.micro_batch_tokens != type(config).model_fields["micro_batch_tokens"].default:
        yield "micro_batch_tokens: TRL counts rollouts; set trl.per_device_train_batch_size"
    if config.micro_batch_bytes != type(config).model_fields["micro_batch_bytes"].default:
        yield "micro_batch_bytes: TRL counts rollouts; set trl.per_device_train_batch_size"
    if config.gradient_checkpointing is not None:
        yield "gradient_checkpointing: set trl.gradient_checkpointing"
    if config.device not in (None, "cpu"):
        yield f"device={config.device!r}: accelerate chooses the device; omit it"
    settings = config.trl or TrlSettings()
    size = settings.per_device_train_batch_size
    if size is not None and config.rollouts_per_step % size:
        yield (
            f"trl.per_device_train_batch_size={size}: does not divide the "
            f"{config.rollouts_per_step} rollouts of a step"
        )
    if "@" in (settings.vllm_server_base_url or ""):
        yield "trl.vllm_server_base_url: settings are recorded, so it must not contain a password"
    if settings.use_vllm and (config.stop or config.stop_token_ids):
        yield "stop, stop_token_ids: TRL does not pass them to vLLM"
    if not settings.use_vllm:
        for name, value in settings:
            if name.startswith("vllm_") and value is not None:
                yield f"trl.{name}: has no effect without trl.use_vllm"
