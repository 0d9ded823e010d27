"""`load_samples`: open any kind of dataset as a stream of samples."""

import os
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any

from assay.errors import ConfigError
from assay.types import Sample

from .read_limits import ReadLimits
from .rows import MemoryRows, Rows
from .sample_stream import Adapter, OnBadRow, SampleStream, StreamPlan

Source = str | PathLike[str] | Iterable[Sample | dict[str, Any]]
"""A path, the name of a hub dataset, or rows in memory."""

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
        # Not above: rows in memory need no readers of files, and an evaluation starts faster.
        from .named_rows import open_named_rows

        rows = open_named_rows(source, split, limits)
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
    if split is not None and not hasattr(rows, "split"):
        raise ConfigError(
            f"split={split!r} has no effect here: only hub datasets and folders have splits",
            where=_LOADER_WHERE,
        )
    return rows
