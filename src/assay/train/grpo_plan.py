"""A training's request, checked as a whole before a model is loaded."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from assay.datasets import SampleStream, SkippedRows, Source, load_samples
from assay.environments import Environment
from assay.errors import ConfigError
from assay.runner import (
    EnvironmentFactory,
    EvalConfig,
    PreparationFailed,
    digest_messages,
    prepare_messages,
)
from assay.scorers import ScoreFunction
from assay.types import Sample

from .grpo_config import GRPOConfig
from .prompt_order import PromptOrder, fingerprint_prompts
from .rollout_settings import build_policy_endpoint

EnvironmentClass = Callable[[], Environment] | Callable[[Sample], Environment] | str
"""Makes a fresh environment, from nothing or from the sample; a name such as `basic` will do."""

_GRPO_WHERE = "grpo_train()"


@dataclass(frozen=True)
class GRPOPlan:
    """What is trained on what."""

    config: GRPOConfig
    evaluation: EvalConfig
    order: PromptOrder
    dataset: str
    dataset_fingerprint: str
    skipped: SkippedRows
    """Rows of the prompts that were left out, where that was asked for."""

    def describe(self) -> dict[str, Any]:
        """What decides what is learned, as plain values without secrets."""
        rollouts = self.evaluation.describe()
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
    environment_cls: EnvironmentClass | None,
) -> GRPOPlan:
    """Read all prompts and fit the parts together. Raises `ConfigError` for what cannot work."""
    stream = prompts if isinstance(prompts, SampleStream) else load_samples(prompts)
    samples = list(stream)
    if not samples:
        raise ConfigError("the dataset of prompts is empty", where=_GRPO_WHERE)
    evaluation = EvalConfig(
        endpoint=build_policy_endpoint(config),
        score_fn=score_fn,
        prepare_messages=config.prepare_messages,
        environment_factory=build_environment_factory(environment_cls),
        name=config.name,
        limits=config.limits,
        concurrency=config.concurrency,
        sample_timeout_s=config.rollout_timeout_s,
        seed=config.seed,
    )
    return GRPOPlan(
        config=config,
        evaluation=evaluation,
        order=PromptOrder(samples, config.seed),
        dataset=stream.name,
        dataset_fingerprint=fingerprint_prompts(samples, _build_message_digest(evaluation)),
        skipped=stream.skipped,
    )


def _build_message_digest(evaluation: EvalConfig) -> Callable[[Sample], str | None]:
    """Tells the messages that the model is sent of a prompt, where they are not the prompt's."""

    def digest(sample: Sample) -> str | None:
        if evaluation.prepare_messages is None:
            return None
        try:
            return digest_messages(prepare_messages(evaluation, sample.model_copy(deep=True)))
        except PreparationFailed:
            return None  # a failure of the rollout, which is attributed there

    return digest


def build_environment_factory(
    environment_cls: EnvironmentClass | None,
) -> EnvironmentFactory | str | None:
    """The class or function as an evaluation takes it: called with the sample."""
    if environment_cls is None or isinstance(environment_cls, str):
        return environment_cls
    if not callable(environment_cls):
        raise ConfigError(
            f"environment_cls={environment_cls!r} cannot be called", where=_GRPO_WHERE
        )
    if not _accepts_arguments(environment_cls):
        return environment_cls  # type: ignore[return-value]  # EvalConfig checks what it takes
    made: Callable[[], Environment] = environment_cls  # type: ignore[assignment]  # just tried

    # It keeps its name and source, by which a resumed training knows it again.
    @wraps(made)
    def factory(sample: Sample) -> Environment:
        return made()

    factory.__signature__ = inspect.signature(lambda sample: None)  # type: ignore[attr-defined]
    return factory


def _accepts_arguments(function: Callable[..., object], *arguments: object) -> bool:
    try:
        inspect.signature(function).bind(*arguments)
    except ValueError:
        return not arguments  # built-in classes do not always tell their signature
    except TypeError:
        return False
    return True
