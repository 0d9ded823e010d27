"""Import of a bundle's results as runs. Reads data only and runs no bundled code."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby, islice

from assay.datasets import Bundle, load_samples
from assay.errors import ConfigError, DatasetError
from assay.store import Run, RunSpec, Store, now, sample_key
from assay.types import Sample

# Samples that are recorded together share a commit; a larger batch costs memory.
_IMPORT_BATCH_SIZE = 200
# Leaves room for the suffix within the length that stores accept.
_MAX_IMPORTED_ID_CHARS = 150
# The number of the rollout at the end of a rollout id.
_REPEAT_SUFFIX = re.compile(r"#(\d{1,9})$")


def import_bundle(bundle: Bundle, store: Store) -> list[str]:
    """Record the runs of a bundle that are not recorded yet; return their ids in this store."""
    stream, runs = load_samples(bundle.path).with_repeats(), bundle.manifest.runs
    listed = sum(run.results for run in runs)
    # Read once in full before anything is recorded: a damaged bundle must leave no partial run.
    samples = iter(stream)
    parts = (islice(samples, run.results) for run in runs)
    where = str(bundle.path)
    found = sum(1 for part in parts for _ in _number_repeats(part, where)) + sum(1 for _ in samples)
    if found != listed:
        raise DatasetError(
            f"the bundle has {found} results, but its manifest lists {listed}", where=where
        )
    samples = iter(stream)
    return [
        _import_run(spec, islice(samples, run.results), run.results, store)
        for run, spec in zip(runs, _build_run_specs(bundle), strict=True)
    ]


def _build_run_specs(bundle: Bundle) -> Iterator[RunSpec]:
    several = len(bundle.manifest.runs) > 1
    for number, run in enumerate(bundle.manifest.runs, start=1):
        mark = f"bundle-{bundle.sha256[:8]}" + (f"-{number}" if several else "")
        yield RunSpec(
            id=f"{run.id[:_MAX_IMPORTED_ID_CHARS]}-{mark}",
            name=run.name,
            config={**run.config, "bundle": {"run": run.id, "sha256": bundle.sha256}},
            config_fingerprint=run.config_fingerprint or bundle.sha256,
            dataset=run.dataset or "unknown",
            dataset_fingerprint=run.dataset_fingerprint,
            # Without a total the run stays resumable, as it was when it was bundled.
            total=run.rows if run.status == "completed" else None,
            repeats=run.repeats,
            created_at=run.created_at or now(),
        )


def _import_run(spec: RunSpec, samples: Iterator[Sample], count: int, store: Store) -> str:
    run: Run | None = None
    with suppress(ConfigError):
        run = store.run(spec.id)
    # The store also matches unique prefixes of ids.
    if run is not None and run.id == spec.id:
        totals = run.totals
        if totals.recorded + totals.failed >= count:
            # All runs share one stream: skip these samples to reach those of the next run.
            for _ in samples:
                pass
            return run.id
        # An earlier import was killed. Recorded samples keep their keys and are not repeated.
        run = store.resume_run(spec.id, spec, take_over=True)
    else:
        run = store.start_run(spec)
    try:
        asyncio.run(_record_imported_samples(run, spec, samples))
    # Finished even on Ctrl-C, so that the next import can resume the run.
    except BaseException:
        run.finish("interrupted")
        raise
    run.finish("completed" if spec.total is not None else "interrupted")
    return run.id


async def _record_imported_samples(run: Run, spec: RunSpec, samples: Iterator[Sample]) -> None:
    async with run.writer() as writer:

        async def record(sample: Sample, repeat: int) -> None:
            key = sample_key(spec.id, sample.id, repeat, spec.config_fingerprint)
            if sample.failure is None:
                await writer.record(key, sample, repeat=repeat)
            else:
                await writer.record_failure(key, sample, repeat=repeat)

        numbered = _number_repeats(samples)
        while batch := list(islice(numbered, _IMPORT_BATCH_SIZE)):
            await asyncio.gather(*(record(sample, repeat) for sample, repeat in batch))


def _number_repeats(samples: Iterator[Sample], where: str = "") -> Iterator[tuple[Sample, int]]:
    # Repeats of a sample are adjacent in a bundle.
    for sample_id, repeats in groupby(samples, lambda sample: sample.id):
        seen: set[int] = set()
        for position, sample in enumerate(repeats):
            own = _REPEAT_SUFFIX.search(sample.rollout_id or "")
            repeat = position if own is None else int(own[1])
            if repeat in seen:
                # A store would keep one of them, and the other would be lost without a word.
                raise DatasetError(f"the bundle has result {sample_id}#{repeat} twice", where=where)
            seen.add(repeat)
            yield sample, repeat
