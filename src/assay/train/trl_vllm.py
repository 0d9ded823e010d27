"""Rollouts sampled by TRL's vLLM, which has the current weights."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from assay.errors import EndpointError
from assay.providers import (
    BatchAnswer,
    BatchEngine,
    BatchQueue,
    Generated,
    Job,
    LocalModel,
    Sampling,
    ShouldStop,
)


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
