"""`load_samples`: open any kind of dataset as a stream of samples."""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, DatasetError, MissingExtra
from assay.types import Sample

from .csv_table import CsvTable
from .hub_rows import HubRows
from .json_array import JsonArray
from .jsonl_rows import JsonLines
from .parquet_table import ParquetTable
from .read_limits import ReadLimits
from .rows import MemoryRows, Rows
from .sample_stream import Adapter, OnBadRow, SampleStream, StreamPlan

Source = str | PathLike[str] | Iterable[Sample | dict[str, Any]]
"""A path, the name of a hub dataset, or rows in memory."""

_TEXT_FILES: dict[str, Callable[[Path, ReadLimits], Rows]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".json": JsonArray,
    ".csv": CsvTable,
}
_ROW_FILE_SUFFIXES = (*_TEXT_FILES, ".parquet")
_OTHER_FILE_SUFFIXES = frozenset(
    ".arrow .avro .bz2 .feather .gz .pickle .pkl .tar .tsv .txt .xls .xlsx .xml .xz .yaml .yml "
    ".zip .zst".split()
)
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?(:[\w.-]+)?")
_MAX_HUB_NAME_CHARS = 200
_FORMAT_HINT = f"supported are {', '.join(_ROW_FILE_SUFFIXES)}, and all but the last with .gz"
_LOADER_WHERE = "load_samples()"


def load_samples(
    source: Source,
    max_samples: int | None = None,
    *,
    on_bad_row: OnBadRow = "fail",
    adapter: Adapter | None = None,
    split: str | None = None,
    limits: ReadLimits | None = None,
) -> SampleStream:
    """Stream samples from a file, a folder, a hub dataset or rows in memory.

    Rows are read lazily, but invalid arguments and missing files raise immediately. With
    `on_bad_row="skip"`, `SampleStream.skipped` lists the omitted rows.
    """
    if max_samples is not None and (type(max_samples) is not int or max_samples < 0):
        raise ConfigError(
            f"max_samples={max_samples!r} is not a number of samples",
            where=_LOADER_WHERE,
            hint="pass None to read all of them",
        )
    if on_bad_row not in ("fail", "skip"):
        message = f"on_bad_row={on_bad_row!r} is neither 'fail' nor 'skip'"
        raise ConfigError(message, where=_LOADER_WHERE)
    if adapter is not None and not callable(adapter):
        raise ConfigError(f"adapter={adapter!r} is not callable", where=_LOADER_WHERE)
    limits = limits or ReadLimits()
    return SampleStream(
        StreamPlan(
            _open_source(source, split, limits),
            max_samples,
            on_bad_row,
            adapter,
            limits,
            os.fspath(source)
            if isinstance(source, str | PathLike)
            else f"{type(source).__name__} in memory",
        )
    )


def _open_source(source: Source, split: str | None, limits: ReadLimits) -> Rows:
    if isinstance(source, str | PathLike):
        rows = _open_named_source(source, split, limits)
    elif isinstance(source, Mapping | Sample | bytes | bytearray) or not isinstance(
        source, Iterable
    ):
        raise ConfigError(
            f"a {type(source).__name__} is not a dataset",
            where=_LOADER_WHERE,
            hint="pass a path, a hub dataset name, or a list of dicts or samples",
        )
    else:
        rows = MemoryRows(source, limits)
    if split is not None and not isinstance(rows, HubRows):
        raise ConfigError(
            f"split={split!r} has no effect here: only hub datasets and folders have splits",
            where=_LOADER_WHERE,
        )
    return rows


def _open_named_source(source: str | PathLike[str], split: str | None, limits: ReadLimits) -> Rows:
    name = os.fspath(source)
    if not name:
        raise ConfigError("the path is empty", where=_LOADER_WHERE)
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
    zipped = suffix == ".gz"
    if zipped:
        suffix = Path(path.stem).suffix.lower()
    # Parquet compresses its own pages and needs random access, so that .gz is not supported.
    if reader := _TEXT_FILES.get(suffix):
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
