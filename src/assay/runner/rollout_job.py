"""The rollouts of a run that are not recorded yet, one job each."""

from collections.abc import Container, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.agents import RunContext
from assay.errors import WireError
from assay.store import KeptRollout, Run, sample_key
from assay.types import Boundary, Sample

from .eval_config import EvalConfig

if TYPE_CHECKING:
    from assay.gateway import ReplayClient


@dataclass(slots=True)
class RolloutJob:
    """One rollout to execute, and its state."""

    sample: Sample
    repeat: int
    key: str
    sample_id: str
    """The id of the sample before user code could change it."""

    group: int | None = None
    """The number that members of a group share, and with it the seed of their environment. None:
    each repeat has a seed of its own."""

    prompt_digest: str | None = None
    """Digest of the first messages; None until they are prepared."""

    kept: KeptRollout | None = None
    """A recorded rollout of this sample, which only needs a score."""

    context: RunContext | None = None
    """What the agent was given; None until the rollout starts."""

    replay: "ReplayClient | None" = None
    """Recorded calls that answer instead of the model."""

    source: str | None = None
    """Key of the recorded sample that is scored again, where the worker of a cluster reads it."""

    waited_for: Boundary | None = None
    """The boundary of an agent that is not a model, or of the model that it called."""


def build_rollout_jobs(
    samples: Iterator[Sample], config: EvalConfig, run: Run, done: Container[str]
) -> Iterator[RolloutJob]:
    """Yield a job for each rollout that is not recorded yet."""
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
    """Return the copy of a sample that one of its repeats fills in."""
    # The fields of the row are copied as well: a scorer that changes them must not change them for
    # the other repeats.
    return sample.model_copy(
        update={
            "group_index": sample.index,
            "rollout_id": f"{sample.id}#{repeat}",
            "input": deepcopy(sample.input),
            "ground_truth": deepcopy(sample.ground_truth),
            "metadata": deepcopy(sample.metadata),
        }
    )


def drop_unwritable_fields(sample: Sample) -> Sample:
    """Copy the fields of a sample that can be written as JSON."""
    kept = Sample(
        id=sample.id,
        index=sample.index,
        group_index=sample.group_index,
        rollout_id=sample.rollout_id,
    )
    for name in ("input", "prompt", "ground_truth", "metadata", "trajectory"):
        more = kept.model_copy(update={name: getattr(sample, name)})
        with suppress(WireError):
            more.to_json_bytes()
            kept = more
    return kept
