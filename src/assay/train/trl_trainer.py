"""TRL's `GRPOTrainer`, configured by a `GRPOConfig`, with assay's rollouts or those of its vLLM."""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from assay.errors import ConfigError, EndpointError, MissingExtra
from assay.providers import (
    BatchAnswer,
    BatchEngine,
    BatchQueue,
    Generated,
    Job,
    LocalModel,
    Sampling,
    ShouldStop,
    prepare_half_precision,
)

from .grpo_config import GRPOConfig
from .policy import Policy
from .trl_processes import ProcessRank, check_process_rank, find_process_rank, is_on_cpu
from .trl_rows import TrlRows
from .trl_settings import TrlSettings

TrlRolloutFunction = Callable[[list[str], Any], dict[str, Any]]

_ROLLOUT_SHARE = "rollout_share"
"""Key of TRL's batch: its rows over the rollouts that are learned from."""


def check_trl(config: GRPOConfig) -> ProcessRank:
    """Return the rank of this process. Raises `ConfigError` for settings that TRL refuses."""
    settings = config.trl or TrlSettings()
    if find_spec("trl") is None:
        raise MissingExtra.build("trl", by="backend='trl'", package="trl")
    if settings.use_vllm and find_spec("vllm") is None:
        raise ConfigError("trl.use_vllm needs the package `vllm`", hint="pip install vllm")
    rank = check_process_rank(config)
    try:
        build_trainer_arguments(config, config.output)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"TRL refuses the settings: {error}", where="backend='trl'") from error
    return rank


def make_trainer(
    config: GRPOConfig, policy: Policy, rollout: TrlRolloutFunction, *, folder: Path
) -> Any:
    """Create a trainer that gets its rollouts from `rollout`. Writes nothing to `folder` yet.

    Its dataset contains numbers instead of prompts; `rollout` maps them to prompts.
    """
    import torch
    from datasets import Dataset
    from transformers import PrinterCallback

    arguments = build_trainer_arguments(config, folder)
    if arguments.bf16:
        prepare_half_precision(torch.bfloat16, policy.local.device)
    numbers = [str(each) for each in range(config.num_steps * config.prompts_per_step)]
    # TRL warns that `rollout_func` is experimental; a test of this package detects changes.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rollout_func.*experimental")
        trainer = _define_trainer_class()(
            model=policy.local.model,
            reward_funcs=read_rewards,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": numbers}),
            processing_class=policy.local.tokenizer,
            optimizers=_build_optimizers(config, policy),
            rollout_func=rollout,
        )
    trainer.remove_callback(PrinterCallback)
    trainer.assay_config = config
    _set_loss(trainer, config, policy)
    return trainer


def read_rewards(*, reward: list[float | None], **_: object) -> list[float | None]:
    """Return the rewards of the rollouts. TRL excludes None from means."""
    return reward


def build_trainer_arguments(config: GRPOConfig, folder: Path) -> Any:
    """Translate the settings to TRL's arguments."""
    from trl import GRPOConfig as Arguments

    settings = config.trl or TrlSettings()
    given = settings.model_dump(exclude={"per_device_train_batch_size"})
    # The weights are float32: TRL computes in the dtype that the local backend would use.
    given["bf16"] = settings.bf16 or config.dtype == "bfloat16"
    processes = find_process_rank(config).count
    size = settings.per_device_train_batch_size or config.rollouts_per_step // processes
    return Arguments(
        output_dir=str(folder),
        max_steps=config.num_steps * config.updates_per_step,
        per_device_train_batch_size=size,
        gradient_accumulation_steps=config.rollouts_per_step // (size * processes),
        num_generations=config.group_size,
        num_iterations=config.updates_per_step,
        max_completion_length=config.max_tokens,
        temperature=config.temperature,
        top_p=config.top_p,
        top_k=config.top_k,
        learning_rate=config.learning_rate,
        max_grad_norm=config.max_grad_norm,
        loss_type=config.loss_type,
        epsilon=config.clip_low,
        epsilon_high=config.clip_high,
        importance_sampling_level=config.importance_level,
        scale_rewards="group" if config.advantage == "std" else "none",
        seed=config.seed,
        use_cpu=is_on_cpu(config),
        # The steps of both backends are reported in one way: see `MetricReport`.
        report_to="none",
        **{name: value for name, value in given.items() if value is not None},
        **_FIXED_ARGUMENTS,
    )


_FIXED_ARGUMENTS: dict[str, Any] = {
    "trust_remote_code": False,
    # assay orders the prompts, writes the checkpoints and computes the importance weights itself.
    "shuffle_dataset": False,
    "save_strategy": "no",
    "vllm_importance_sampling_correction": False,
    # The same divergence as in `losses.compute_divergence`.
    "use_bias_correction_kl": False,
    "logging_steps": 1,
    "disable_tqdm": True,
    # The dataset contains only numbers: pinned memory would be wasted on it.
    "dataloader_pin_memory": False,
}


def _build_optimizers(config: GRPOConfig, policy: Policy) -> tuple[Any, Any]:
    # The optimiser and schedule of the local backend, so that both train alike.
    from torch.optim.lr_scheduler import LambdaLR

    optimizer, updates = policy.weights.optimizer, config.updates_per_step
    for group in optimizer.param_groups:
        group["lr"] = config.learning_rate

    def factor(done: int) -> float:
        return config.learning_rate_at(done // updates + 1) / config.learning_rate

    return optimizer, LambdaLR(optimizer, factor)


def _set_loss(trainer: Any, config: GRPOConfig, policy: Policy) -> None:
    # TRL would take the constant of `dr_grpo` from `max_completion_length`, and load the reference
    # from the folder in the model's configuration, which may contain another model.
    from trl.trainer.utils import add_fused_lm_head

    trainer.max_completion_length = config.length_constant or config.max_tokens
    trainer.beta = config.beta
    if config.beta > 0 and policy.reference is not None:
        add_fused_lm_head(policy.reference, temperature=config.temperature)
        trainer.ref_model = trainer.accelerator.prepare_model(
            policy.reference, evaluation_mode=True
        )


def _define_trainer_class() -> Any:
    from trl import GRPOTrainer

    class Trainer(GRPOTrainer):  # type: ignore[misc]  # TRL has no types
        assay_config: GRPOConfig
        assay_rows: TrlRows
        """The rows that `rollout_func` returned last."""

        assay_weights: Mapping[str, float] = MappingProxyType({})
        """Metrics of the last step's importance weights."""

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            # TRL computes one advantage for each prompt; forked rollouts add rows.
            rows, share = self.assay_rows, 1.0
            batch["advantages"] = batch["advantages"].new_tensor(rows.advantages)
            # TRL divides `grpo` and `dr_grpo` by all rows, including fillers: undo that.
            if self.assay_config.loss_type != "dapo" and rows.trained:
                share = rows.count * int(self.accelerator.num_processes) / rows.trained
            batch[_ROLLOUT_SHARE] = batch["advantages"].new_tensor(share)
            if (cap := self.assay_config.importance_cap) is not None:
                weight = compute_trl_importance_weights(self, batch, cap)
                batch["advantages"] = batch["advantages"][:, None] * weight
                weight = weight[compute_trl_loss_mask(batch).bool()]
                # The mean of no weights would be NaN.
                self.assay_weights = (
                    {
                        "importance_weight": float(weight.mean()),
                        "importance_capped": float((weight >= cap).float().mean()),
                    }
                    if len(weight)
                    else {}
                )
            return batch

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            return super()._compute_loss(model, inputs) * inputs[_ROLLOUT_SHARE]

        def _send_telemetry(self) -> None:
            """Send nothing: TRL would report the model and the hardware to the hub."""

        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Write no model card: the recorded run describes the training."""

    return Trainer


def compute_trl_importance_weights(trainer: Any, batch: dict[str, Any], cap: float) -> Any:
    """Return the weight that corrects each token for its sampling engine, up to the cap.

    TRL corrects for vLLM only. Weights are never negative, so the caller may multiply advantages
    by them without changing which gains are clipped.
    """
    import torch

    old = batch.get("old_per_token_logps")
    if old is None:
        ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
        seen = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
        width, size = batch["completion_ids"].shape[1], trainer.args.per_device_train_batch_size
        with torch.no_grad():
            old, *_ = trainer._get_per_token_logps_and_entropies(
                trainer.model, ids, seen, width, batch_size=size
            )
    gap = (old - batch["sampling_per_token_logps"]) * compute_trl_loss_mask(batch)
    return torch.nan_to_num(gap, nan=0.0).exp().clamp(max=cap)


def compute_trl_loss_mask(batch: dict[str, Any]) -> Any:
    """Return a mask of the tokens of TRL's batch that are trained on."""
    mask = batch["completion_mask"]
    return mask * batch["tool_mask"] if "tool_mask" in batch else mask


@contextmanager
def quiet_trl() -> Iterator[None]:
    """Silence TRL's warning about rollouts without a reward, which the metrics count."""

    def is_relevant(entry: logging.LogRecord) -> bool:
        return "All reward functions returned None" not in str(entry.msg)

    logger = logging.getLogger("trl.trainer.grpo_trainer")
    logger.addFilter(is_relevant)
    try:
        yield
    finally:
        logger.removeFilter(is_relevant)


class VllmEngine:
    """Answers batches of prompts with TRL's vLLM.

    The trainer's arguments configure the sampling. Seeds are not used.
    """

    def __init__(self, generation: Any, local: LocalModel) -> None:
        self._generation = generation
        self._local = local

    @property
    def weight_version(self) -> str | None:
        """The version of the model in training."""
        return self._local.weight_version

    @weight_version.setter
    def weight_version(self, value: str | None) -> None:
        self._local.weight_version = value

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        sampling: Sequence[Sampling] | Sampling,
        *,
        seeds: Sequence[int | None],
        should_stop: ShouldStop | None = None,
    ) -> list[Generated]:
        """Return a completion for each prompt."""
        _, ids, logprobs, _ = self._generation.generate(
            prompts=[list(prompt) for prompt in prompts], images=None, num_generations=1
        )
        generated = []
        for each, tokens in zip(ids, logprobs, strict=True):
            known = tuple(token[0] for token in tokens if token[0] is not None)
            if not each or len(known) != len(each):
                raise EndpointError(
                    f"vLLM returned {len(each)} tokens and {len(known)} logprobs", retryable=False
                )
            ended = each[-1] in self._local.stop_ids
            generated.append(Generated(tuple(each), known, "stop" if ended else "length"))
        return generated


class _RedirectedBatches(BatchQueue):
    """Redirects the batches of one engine to another."""

    def __init__(self, batches: BatchQueue, engine: BatchEngine) -> None:
        super().__init__()
        self._batches = batches
        self._engine = engine

    async def answer(self, job: Job, engine: BatchEngine, *, max_batch: int) -> BatchAnswer:
        return await self._batches.answer(job, self._engine, max_batch=max_batch)


@contextmanager
def sample_with_vllm(trainer: Any, local: LocalModel) -> Iterator[None]:
    """Send the calls of this model to the trainer's vLLM, if it has one."""
    if not trainer.use_vllm:
        yield
        return
    batches = local.batches
    local.batches = _RedirectedBatches(batches, VllmEngine(trainer.vllm_generation, local))
    try:
        yield
    finally:
        local.batches = batches
