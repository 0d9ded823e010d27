"""Copy the dataset of a manifest to an immutable file in the cache, and read it as samples."""

import re
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

from assay.errors import ConfigError, DatasetError
from assay.types import Sample

from ..loader import load_samples
from .access_rules import FetchRules, FileVersion, GoldenDataset
from .addresses import DatasetAddress, read_address
from .download import Download, PartFile, find_cached
from .object_store import copy_object, require_store
from .web import copy_page

_COPY_CHUNK_BYTES = 1024 * 1024
_SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")


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
    copy: Callable[[Download], FileVersion]
    if address.scheme == "file":
        copy = partial(copy_file, find_file(address, root, rules), shown=address.shown)
    elif address.store is None:
        copy = partial(copy_page, address, rules=rules)
    else:
        require_store(address)
        copy = partial(copy_object, address, rules=rules)
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


def find_file(address: DatasetAddress, root: Path | None, rules: FetchRules) -> Path:
    """Resolve a path and its symbolic links. Raises `DatasetError` outside of `root`."""
    given = Path(address.text)
    if root is None and not given.is_absolute():
        hint = "pass root=, the folder that the path is relative to"
        raise DatasetError(
            "the path is relative, and no root folder is given", where=address.shown, hint=hint
        )
    try:
        path = given if root is None else root / given
        found = path.resolve()
        inside = root is not None and found.is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):
        raise DatasetError("the path is invalid", where=address.shown) from None
    if not inside and not rules.allow_outside:
        raise DatasetError(
            "the path leads out of the folder of the manifest",
            where=address.shown,
            hint="move the file there, or allow it with --allow-outside",
        )
    return found


def copy_file(path: Path, download: Download, shown: str) -> FileVersion:
    """Copy a regular file. Raises `DatasetError` for anything else."""
    try:
        # Checked before opening: a named pipe would block, and a device might never end.
        kind = path.stat().st_mode
        if not stat.S_ISREG(kind):
            actual = "a folder" if stat.S_ISDIR(kind) else "not a regular file"
            raise DatasetError(f"the path is {actual}", where=shown, hint="name a file")
        with path.open("rb") as file:
            while piece := file.read(_COPY_CHUNK_BYTES):
                download.write(piece)
    except FileNotFoundError:
        raise DatasetError("the file does not exist", where=shown, hint="check the path") from None
    except OSError as error:
        raise DatasetError(f"the file cannot be read: {error.strerror}", where=shown) from error
    return FileVersion()


def read_golden(dataset: GoldenDataset) -> tuple[Sample, ...]:
    """Read all samples of a golden dataset. Raises `DatasetError` with the invalid row.

    A row without an id gets a stable one, as in `load_samples`.
    """
    try:
        samples = tuple(load_samples(dataset.path))
    except DatasetError as error:
        # Users know the address of the dataset, not the path of its copy in the cache.
        path = str(dataset.path)
        where = (error.where or path).replace(path, dataset.uri)
        hint = error.hint
        if "adapter=" in (hint or ""):
            hint = "give each row a unique `id`"  # a certification takes no adapter
        message = error.message.replace(path, dataset.uri)
        raise type(error)(message, where=where, hint=hint) from error
    if not samples:
        raise DatasetError("the dataset contains no samples", where=dataset.uri)
    return samples
