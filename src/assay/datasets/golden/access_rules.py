"""What may be fetched for a manifest, and what a fetched dataset is."""

import math
from dataclasses import dataclass
from pathlib import Path

from assay.errors import ConfigError


@dataclass(frozen=True)
class FetchRules:
    """What the person who runs a certification allows. A manifest cannot change any of it."""

    allow_outside: bool = False
    """Whether a local path may lead out of the manifest's folder."""

    allow_private: bool = False
    """Whether http may connect to this machine and its private network."""

    max_bytes: int = 256 * 1024 * 1024
    timeout_s: float = 300.0
    """How long fetching over http may take in all."""

    endpoint_url: str | None = None
    """The address of an S3-compatible server; None leaves it to `AWS_ENDPOINT_URL` and AWS."""

    allow_memory: bool = False
    """Whether `memory:` is a place to fetch from; for tests."""

    def __post_init__(self) -> None:
        if type(self.max_bytes) is not int or self.max_bytes < 1:
            raise ConfigError(
                f"max_bytes={self.max_bytes!r} is not a positive whole number", where="FetchRules"
            )
        if not (math.isfinite(self.timeout_s) and self.timeout_s > 0):
            raise ConfigError(
                f"timeout_s={self.timeout_s!r} is not a positive number", where="FetchRules"
            )


@dataclass(frozen=True)
class GoldenDataset:
    """A dataset as it was fetched: a file that nothing else writes to, named by its digest."""

    path: Path
    uri: str
    """Where it came from, without user, password and query."""

    sha256: str
    size: int
    etag: str | None = None
    version: str | None = None
    """What the server calls this state of the dataset, where it does."""


@dataclass(frozen=True)
class FileVersion:
    """What a server says about the file it sent."""

    etag: str | None = None
    version: str | None = None
