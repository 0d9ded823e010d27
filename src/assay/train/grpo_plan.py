"""The plan of a training, checked as a whole before a model is loaded."""

from dataclasses import dataclass
from typing import Any

from assay.datasets import SampleStream, SkippedRows, Source, load_samples
from assay.environments import EnvironmentLike
from assay.errors import ConfigError
from assay.runner import (
    EvalConfig,
    PreparationFailed,
    digest_messages,
    prepare_messages,
)
from assay.scorers import ScoreFunction
from assay.types import Sample

from .grpo_config import GRPOConfig, build_policy_endpoint
from .prompt_order import PromptOrder, fingerprint_prompts

_GRPO_WHERE = "grpo_train()"


@dataclass(frozen=True)
class GRPOPlan:
    """The configuration of a training, its prompts and how they are rolled out."""

    config: GRPOConfig
    evaluation: EvalConfig
    order: PromptOrder
    dataset: str
    dataset_fingerprint: str
    skipped: SkippedRows
    """Invalid rows of the prompts that were skipped."""

    def describe(self) -> dict[str, Any]:
        """Return the settings that must not change on a resume, as plain values without secrets."""
        rollouts = self.evaluation.describe()
        # The key `environment_cls` is that of recorded trainings.
        return {
            "training": self.config.describe(),
            "score_fn": rollouts["score_fn"],
            "environment_cls": rollouts["environment_factory"],
            "prepare_messages": rollouts["prepare_messages"],
        }


def plan_training(
    config: GRPOConfig,
    prompts: Source | SampleStream,
    score_fn: ScoreFunction | None,
    environment: EnvironmentLike | None,
) -> GRPOPlan:
    """Read all prompts and build the plan. Raises `ConfigError` for an invalid combination."""
    stream = prompts if isinstance(prompts, SampleStream) else load_samples(prompts)
    samples = list(stream)
    if not samples:
        raise ConfigError("the dataset of prompts is empty", where=_GRPO_WHERE)
    evaluation = EvalConfig(
        endpoint=build_policy_endpoint(config),
        score_fn=score_fn,
        prepare_messages=config.prepare_messages,
        environment=environment,
        name=config.name,
        limits=config.limits,
        concurrency=config.concurrency,
        timeout_s=config.timeout_s,
        seed=config.seed,
    )

    # `prepare_messages` may change while the prompts stay the same: its output is compared too.
    def digest_sent(sample: Sample) -> str | None:
        if evaluation.prepare_messages is None:
            return None
        try:
            return digest_messages(prepare_messages(evaluation, sample.model_copy(deep=True)))
        except PreparationFailed:
            return None  # the rollout will fail in the same way and record the error

    return GRPOPlan(
        config=config,
        evaluation=evaluation,
        order=PromptOrder(samples, config.seed),
        dataset=stream.name,
        dataset_fingerprint=fingerprint_prompts(samples, digest_sent),
        skipped=stream.skipped,
    )
