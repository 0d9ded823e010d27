"""Shards: the parts of a run that several processes execute, by a hash of the sample id."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from assay.errors import ConfigError
from assay.store import Run
from assay.types import Sample

_SHARD_TEXT = re.compile(r"([0-9]{1,9})/([0-9]{1,9})")


@dataclass(frozen=True)
class Shard:
    """One part of a run. Each sample belongs to one of the `count` parts, in every process."""

    run_id: str
    """The run. The first process that names it creates it."""

    number: int
    """From 1 to `count`."""

    count: int
    allow_changed_dataset: bool = False
    """Match the samples of a changed dataset by id. False: a changed dataset is an error."""

    is_worker: bool = False
    """Whether one command started all processes, with the same options: the number of samples may
    then differ from that of an earlier execution, as when a run is resumed in one process."""

    total: int | None = None
    """The number of samples, if the command has read and checked them all: then a worker need not
    do so before its first call. None: not counted."""

    failed_before: int | None = None
    """Failed attempts of the run that `fail_on_error` leaves out. None: those recorded before this
    process joined the run."""

    def __post_init__(self) -> None:
        if not isinstance(self.run_id, str):
            raise ConfigError(
                f"`run_id` cannot be of type `{type(self.run_id).__name__}`",
                where="Shard",
                hint="write Shard(run_id, number, count)",
            )
        if not 1 <= self.number <= self.count:
            raise ConfigError(
                f"shard {self} does not exist",
                where="Shard",
                hint=f"number the shards from 1 to {max(self.count, 1)}",
            )

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    @classmethod
    def parse(cls, text: str, run_id: str) -> "Shard":
        """Parse a text such as `3/16`."""
        found = _SHARD_TEXT.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"{text!r} is not a shard", where="Shard", hint="write NUMBER/COUNT, such as 3/16"
            )
        return cls(run_id, int(found[1]), int(found[2]))

    @property
    def allows_changed_total(self) -> bool:
        """Whether the run takes over the number of samples that this process reads."""
        return self.is_worker or self.allow_changed_dataset

    def has(self, sample_id: str) -> bool:
        """Whether a sample belongs to this part."""
        digest = blake2b(sample_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1

    def select(self, samples: Iterable[Sample], run: Run) -> Iterator[Sample]:
        """Yield the samples of this part. At the end the run learns the number of all samples.

        Raises `ConfigError` if another process has read another number.
        """
        read = 0
        for sample in samples:
            read += 1
            if self.has(sample.id):
                yield sample
        total = run.record_total(read, overwrite=self.allows_changed_total)
        if total != read:
            raise ConfigError(
                f"shard {self} read {read} samples of the dataset, but another shard read {total}",
                where=f"run {run.id!r}",
                hint="give all shards the same dataset and the same limit on samples",
            )
