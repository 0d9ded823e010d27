"""The rollouts of a run that are still to do, one sample at a time."""

from collections.abc import Container, Iterator
from copy import deepcopy
from dataclasses import dataclass

from assay.store import KeptRollout, Run, sample_key
from assay.types import Boundary, Sample

from .eval_config import EvalConfig


@dataclass(slots=True)
class RolloutJob:
    """One rollout to do."""

    sample: Sample
    repeat: int
    key: str
    sample_id: str
    """As it was before anybody's code had the sample."""

    prompt_digest: str | None = None
    """Of the messages that the agent was sent first; None until then."""

    kept: KeptRollout | None = None
    """A rollout of this sample that was paid for, and is to be scored only."""

    waited_for: Boundary | None = None
    """Where a rollout by `rollout_fn` broke; None where that is not known."""


def build_rollout_jobs(
    samples: Iterator[Sample], config: EvalConfig, run: Run, done: Container[str]
) -> Iterator[RolloutJob]:
    """The rollouts that are not recorded yet."""
    run_id, fingerprint = run.id, run.key_fingerprint
    if config.repeats == 1:
        for sample in samples:
            key = sample_key(run_id, sample.id, 0, fingerprint)
            if key not in done:
                yield RolloutJob(sample, 0, key, sample.id)
        return
    places = run.places()
    for sample in samples:
        keys = [sample_key(run_id, sample.id, n, fingerprint) for n in range(config.repeats)]
        left = [(repeat, key) for repeat, key in enumerate(keys) if key not in done]
        if left and places is not None:
            sample.index = places.of(keys, sample.index)
        for repeat, key in left:
            yield RolloutJob(copy_sample(sample, repeat), repeat, key, sample.id)


def copy_sample(sample: Sample, repeat: int) -> Sample:
    """The sample that one of several rollouts fills.

    What came with the row is copied as well: a scorer that changes it must not change it for the
    others.
    """
    return sample.model_copy(
        update={
            "group_index": sample.index,
            "rollout_id": f"{sample.id}#{repeat}",
            "input": deepcopy(sample.input),
            "ground_truth": deepcopy(sample.ground_truth),
            "metadata": deepcopy(sample.metadata),
        }
    )
