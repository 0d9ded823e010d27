"""Rows of a file, a folder or a hub dataset, by its path or name."""

import os
import re
from collections.abc import Callable
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

from assay.errors import ConfigError, DatasetError, MissingExtra

from .csv_table import CsvTable
from .hub_rows import HubRows
from .json_array import JsonArray
from .jsonl_rows import JsonLines
from .parquet_table import ParquetTable
from .read_limits import ReadLimits
from .rows import Rows

_TEXT_FILES: dict[str, Callable[[Path, ReadLimits], Rows]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonArray,
    ".csv": CsvTable,
    ".tsv": CsvTable,
}
_ROW_FILE_SUFFIXES = (*_TEXT_FILES, ".parquet")
_OTHER_FILE_SUFFIXES = frozenset(
    ".arrow .avro .bz2 .feather .gz .pickle .pkl .tar .txt .xls .xlsx .xml .xz .yaml .yml "
    ".zip .zst".split()
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")
_MAX_HUB_NAME_CHARS = 200
_FORMAT_HINT = (
    f"supported are {', '.join(_ROW_FILE_SUFFIXES)}, and all but the last with .gz or .zst"
)


def open_named_rows(source: str | PathLike[str], split: str | None, limits: ReadLimits) -> Rows:
    """Open the rows of a path or the name of a hub dataset. Raises for one that does not exist."""
    name = os.fspath(source)
    if not name:
        raise ConfigError("the path is empty", where="load_samples()")
    path = Path(name)
    # os.path returns False where Path raises, for example for a name that is too long.
    if os.path.isdir(name):
        _require_package("datasets", "hf", "reading a dataset folder")
        return HubRows(path, split, limits)
    if os.path.exists(name):
        return _open_file_rows(path, limits)
    # A name with the suffix of a file is a misspelled path rather than a hub dataset.
    looks_like_file = path.suffix.lower() in (*_ROW_FILE_SUFFIXES, *_OTHER_FILE_SUFFIXES)
    fits = len(name) <= _MAX_HUB_NAME_CHARS and _HUB_NAME.fullmatch(name)
    if isinstance(source, str) and fits and not looks_like_file:
        _require_package(
            "datasets", "hf", f"{name!r} is not a local file or folder; loading a hub dataset"
        )
        return HubRows(name, split, limits)
    raise DatasetError(
        "the file or folder does not exist",
        where=name if len(name) <= 200 else f"{name[:200]}…",
        hint="check the path; a hub dataset is named `name`, `org/name` or `org/name:subset`",
    )


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file is that of a bundle."""
    return os.fspath(path).lower().endswith((".tar.gz", ".tgz"))


def _open_file_rows(path: Path, limits: ReadLimits) -> Rows:
    if not path.is_file():
        raise DatasetError(
            "the path is not a regular file", where=str(path), hint="copy it to a regular file"
        )
    if is_bundle(path):
        # Not above: few datasets are bundles, whose models take long to import.
        from .bundle_file import BundleRows

        return BundleRows(path, limits)
    suffix = path.suffix.lower()
    zipped = suffix in (".gz", ".zst")
    if zipped:
        suffix = Path(path.stem).suffix.lower()
    # Parquet compresses its own pages and needs random access, so that neither is supported.
    if reader := _TEXT_FILES.get(suffix):
        if path.suffix.lower() == ".zst":
            _require_package("zstandard", "zstd", f"reading {path.name}")
        return reader(path, limits)
    if suffix == ".parquet" and not zipped:
        _require_package("pyarrow", "parquet", "reading Parquet")
        return ParquetTable(path, limits)
    raise DatasetError(
        f"the name {path.name!r} does not have the suffix of a supported format",
        where=str(path),
        hint=_FORMAT_HINT,
    )


def _require_package(package: str, extra: str, by: str) -> None:
    spec = find_spec(package)
    # Without an origin it is a namespace package: a plain folder such as `datasets/`.
    if spec is None or spec.origin is None:
        raise MissingExtra.build(extra, by=by, package=package)
