"""Deterministic keys of samples, and the set of those that are done."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache


def sample_key(run_id: str, sample_id: str, repeat: int, fingerprint: str) -> str:
    """The same 32 characters for the same sample of the same run, in every process."""
    digest = _start_digest(run_id).copy()
    # Lengths keep ("a", "bc") and ("ab", "c") apart.
    text = f"{len(sample_id)}:{sample_id}{repeat}:{fingerprint}"
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@lru_cache(maxsize=16)
def _start_digest(run_id: str) -> "hashlib.blake2b":
    text = f"{len(run_id)}:{run_id}"
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)


class DoneKeys:
    """The keys that were recorded when this was read: 8 bytes each, however many.

    Holds 64 bits of each key's digest. Among a million keys the chance that one which is not
    done looks done is under 1e-7.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        # In 256 parts, because sorting makes a list of full-size integers for a moment.
        self._parts = [array("Q") for _ in range(256)]
        for key in keys:
            digest = _hash_sample_key(key)
            self._parts[digest & 255].append(digest)
        for number, part in enumerate(self._parts):
            self._parts[number] = array("Q", sorted(part))
        self._count = sum(map(len, self._parts))

    def __contains__(self, key: object) -> bool:
        if not self._count or not isinstance(key, str):
            return False  # nothing is done in a new run, and no digest is needed to know it
        digest = _hash_sample_key(key)
        part = self._parts[digest & 255]
        place = bisect_left(part, digest)
        return place < len(part) and part[place] == digest

    def __len__(self) -> int:
        return self._count


class RecordedPrompts:
    """Which key was recorded with which prompt, in 8 bytes for each, as `DoneKeys` has them."""

    def __init__(self, digests: Iterable[tuple[str, str | None]]) -> None:
        self._marks = DoneKeys(f"{key} {digest or ''}" for key, digest in digests)

    def has(self, key: str, digest: str | None) -> bool:
        """Whether `key` was recorded with the prompt of this digest; None: with an unknown one."""
        return f"{key} {digest or ''}" in self._marks


def _hash_sample_key(key: str) -> int:
    encoded = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big")
