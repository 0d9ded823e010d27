"""Which part of a split a sample belongs to: decided by its id, the same one tomorrow."""

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
    """Shares of the samples, each with the name of its part."""

    shares: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> "Split":
        """`0.9` is 0.9 and the rest; `0.8/0.1/0.1` is training, validation and test."""
        try:
            shares = [float(each) for each in text.split("/")]
        except ValueError:
            raise _build_split_error(text) from None
        if len(shares) == 1:
            shares.append(1.0 - shares[0])
        whole = math.isclose(sum(shares), 1.0, abs_tol=1e-6)
        if (
            len(shares) not in _PART_NAMES
            or not whole
            or not all(0 < share < 1 for share in shares)
        ):
            raise _build_split_error(text)
        return cls(tuple(shares))

    @property
    def names(self) -> tuple[str, ...]:
        return _PART_NAMES[len(self.shares)]

    def part_of(self, sample_id: str) -> str:
        """The part of an id: the same in every export, whatever else is exported."""
        digest = blake2b(sample_id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        place = int.from_bytes(digest, "big") / 2**64
        reached = 0.0
        for name, share in zip(self.names, self.shares, strict=True):
            reached += share
            if place < reached:
                return name
        return self.names[-1]

    def files(self, target: Path) -> dict[str, Path]:
        """`data.jsonl` becomes `data.train.jsonl` and `data.test.jsonl`."""
        return {
            name: target.with_name(f"{target.stem}.{name}{target.suffix}") for name in self.names
        }


def _build_split_error(text: str) -> ConfigError:
    return ConfigError(
        f"{text!r} is not a valid split",
        where="--split",
        hint="pass a share such as 0.9, or shares that add up to 1: 0.9/0.1, or 0.8/0.1/0.1",
    )


@dataclass
class Splitter:
    """Puts samples that were asked the same into the same part, whatever their ids."""

    split: Split
    _prompts: DigestTable = field(default_factory=DigestTable)

    def part_of(self, sample: Sample) -> str:
        asked = get_prompt_messages(sample)
        if not asked:
            return self.split.part_of(sample.id)
        # The id of the first one decides for all: otherwise the test part could hold the
        # question that another id was trained on.
        return self.split.part_of(self._prompts.first(digest_conversation(asked), sample.id))
