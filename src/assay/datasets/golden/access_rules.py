"""The rules for fetching golden datasets, and the description of a fetched one."""

import math
from dataclasses import dataclass
from pathlib import Path

from assay.errors import ConfigError


@dataclass(frozen=True)
class FetchRules:
    """The permissions and limits of a fetch.

    They are set by the user who runs a certification; a manifest cannot change them.
    """

    allow_outside: bool = False
    """Whether a local path may lead out of the manifest's folder."""

    allow_private: bool = False
    """Whether http may connect to this machine and its private network."""

    max_bytes: int = 256 * 1024 * 1024
    timeout_s: float = 300.0
    """The total time limit of a fetch over http."""

    endpoint_url: str | None = None
    """The address of an S3-compatible server; None uses `AWS_ENDPOINT_URL` or AWS."""

    allow_memory: bool = False
    """Whether the scheme `memory:` is allowed; for tests."""

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
    """A fetched dataset: a file in the cache, named by its digest."""

    path: Path
    uri: str
    """The source, without user, password and query."""

    sha256: str
    size: int
    etag: str | None = None
    version: str | None = None
    """The version id of the server, if it has one."""


@dataclass(frozen=True)
class FileVersion:
    """The version of a file, as reported by its server."""

    etag: str | None = None
    version: str | None = None
