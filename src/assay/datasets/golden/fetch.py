"""`fetch_golden`: copy the dataset of a manifest to an immutable file in the cache."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay.errors import ConfigError, DatasetError

from .access_rules import FetchRules, FileVersion, GoldenDataset
from .addresses import DatasetAddress, read_address
from .download import Download, PartFile, find_cached
from .local_file import copy_file, find_file
from .object_store import copy_object, require_store
from .web import copy_page

_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")

CopyFunction = Callable[[Download], FileVersion]
"""Copies a dataset into a download."""


def fetch_golden(
    uri: str,
    *,
    root: Path | None,
    cache: Path,
    sha256: str | None = None,
    rules: FetchRules | None = None,
) -> GoldenDataset:
    """Copy a golden dataset into `cache`, completely or not at all, and hash it.

    A path is relative to `root` and must stay inside it. With `sha256`, any other content is
    refused, and a cached copy is not fetched again. Raises `DatasetError`, or its subclass
    `DatasetOutOfReach` if the dataset may exist but could not be reached.
    """
    rules = rules or FetchRules()
    if sha256 is not None and not _SHA256_PATTERN.fullmatch(sha256):
        raise ConfigError(f"sha256={sha256!r} is not a SHA-256 digest", where="fetch_golden()")
    address = read_address(uri, rules)
    copy = _choose_copy(address, root, rules)
    if sha256 is not None and address.scheme != "file" and (kept := find_cached(cache, sha256)):
        return GoldenDataset(kept, address.shown, sha256, kept.stat().st_size)
    with PartFile(cache) as part:
        download = Download(part.file, shown=address.shown, max_bytes=rules.max_bytes)
        about = copy(download)
        digest = download.sha256
        if sha256 not in (None, digest):
            raise DatasetError(
                f"the dataset is not the pinned one: its sha256 is {digest}, not {sha256}",
                where=address.shown,
                hint="the dataset has changed: find out why before you update the pin",
            )
        path = part.keep(f"{digest}{download.suffix}")
    size = download.size
    return GoldenDataset(path, address.shown, digest, size, about.etag, about.version)


def _choose_copy(address: DatasetAddress, root: Path | None, rules: FetchRules) -> CopyFunction:
    if address.scheme == "file":
        path = find_file(address, root, rules)
        return partial(copy_file, path, shown=address.shown)
    if address.store is None:
        return lambda download: copy_page(address, download, rules)
    require_store(address)
    return lambda download: copy_object(address, download, rules)
