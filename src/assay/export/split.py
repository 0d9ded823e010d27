"""Assign samples to the parts of a split by their ids, reproducibly."""

import math
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from assay.errors import ConfigError
from assay.formats import get_prompt_messages
from assay.types import Sample

from .content_digests import DigestTable, digest_conversation

_PART_NAMES = {2: ("train", "test"), 3: ("train", "validation", "test")}


@dataclass(frozen=True)
class Split:
    """The shares of the parts of a split."""

    shares: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> "Split":
        """Parse `0.9` (train, and the rest is test) or `0.8/0.1/0.1` (with validation)."""
        try:
            shares = [float(each) for each in text.split("/")]
        except ValueError:
            shares = []
        if len(shares) == 1:
            shares.append(1.0 - shares[0])
        # With a tolerance, so that 0.333333/0.333333/0.333334 is accepted.
        whole = math.isclose(sum(shares), 1.0, abs_tol=1e-6)
        if (
            len(shares) not in _PART_NAMES
            or not whole
            or not all(0 < share < 1 for share in shares)
        ):
            raise ConfigError(
                f"{text!r} is not a valid split",
                where="--split",
                hint="pass a share such as 0.9, or shares that add up to 1: 0.9/0.1, or "
                "0.8/0.1/0.1",
            )
        return cls(tuple(shares))

    @property
    def names(self) -> tuple[str, ...]:
        return _PART_NAMES[len(self.shares)]

    def part_of(self, sample_id: str) -> str:
        """Return the part of an id: the same in every export, regardless of other samples."""
        digest = blake2b(sample_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        position = int.from_bytes(digest, "big") / 2**64
        upper = 0.0
        for name, share in zip(self.names, self.shares, strict=True):
            upper += share
            if position < upper:
                return name
        # The shares may sum to a little less than 1.
        return self.names[-1]

    def files(self, target: Path) -> dict[str, Path]:
        """Return the file of each part, such as `data.train.jsonl` for `data.jsonl`."""
        return {
            name: target.with_name(f"{target.stem}.{name}{target.suffix}") for name in self.names
        }


@dataclass
class Splitter:
    """Assigns samples with the same prompt to the same part, regardless of their ids."""

    split: Split
    _prompts: DigestTable = field(default_factory=DigestTable)

    def part_of(self, sample: Sample) -> str:
        asked = get_prompt_messages(sample)
        if not asked:
            return self.split.part_of(sample.id)
        # The first id of a prompt decides for all: otherwise the test part could contain a prompt
        # that is in the training part under another id.
        return self.split.part_of(self._prompts.first(digest_conversation(asked), sample.id))
