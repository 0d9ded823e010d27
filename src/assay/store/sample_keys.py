"""Deterministic keys of samples, and compact sets of recorded keys."""

import hashlib
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache


def sample_key(run_id: str, sample_id: str, repeat: int, fingerprint: str) -> str:
    """Return 32 characters that are the same for the same sample of a run in every process."""
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
    """An immutable set of recorded keys that takes 8 bytes per key.

    Keeps 64 bits of each key's digest. With a million keys, the probability that a missing key
    appears to be recorded is below 1e-7.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        # In 256 parts: sorting makes a temporary list of full-size integers, 36 bytes each.
        self._parts = [array("Q") for _ in range(256)]
        for key in keys:
            digest = _hash_sample_key(key)
            self._parts[digest & 255].append(digest)
        for number, part in enumerate(self._parts):
            self._parts[number] = array("Q", sorted(part))
        self._count = sum(map(len, self._parts))

    def __contains__(self, key: object) -> bool:
        if not self._count or not isinstance(key, str):
            return False  # a new run: skip the digest
        digest = _hash_sample_key(key)
        part = self._parts[digest & 255]
        index = bisect_left(part, digest)
        return index < len(part) and part[index] == digest

    def __len__(self) -> int:
        return self._count


class RecordedPrompts:
    """A compact set of pairs of recorded key and prompt, 8 bytes per pair."""

    def __init__(self, digests: Iterable[tuple[str, str | None]]) -> None:
        self._marks = DoneKeys(f"{key} {digest or ''}" for key, digest in digests)

    def has(self, key: str, digest: str | None) -> bool:
        """Whether `key` was recorded with the prompt of this digest; None: with an unknown one."""
        return f"{key} {digest or ''}" in self._marks


def _hash_sample_key(key: str) -> int:
    encoded = key.encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big")
