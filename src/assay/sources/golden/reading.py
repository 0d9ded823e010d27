"""A fetched dataset read as samples: all of them, each with an id of its own, at least one."""

from typing import Any

from assay.errors import DatasetError
from assay.models import Sample

from ..layouts import ID_KEYS
from ..load import load_samples
from .rules import GoldenDataset


def read_golden(dataset: GoldenDataset) -> tuple[Sample, ...]:
    """All samples of a golden dataset. Raises `DatasetError` naming the row of what is wrong.

    Each row brings its own id, because results are told apart and compared by it.
    """
    with_id: list[bool] = []

    def note(row: dict[str, Any]) -> dict[str, Any]:
        with_id.append(_has_id(row))
        return row

    try:
        samples = tuple(load_samples(dataset.path, adapter=note))
    except DatasetError as error:
        raise _renamed(error, dataset) from error
    if not samples:
        raise DatasetError("holds no samples", where=dataset.uri)
    if not all(with_id):
        row = with_id.index(False) + 1
        hint = f"give each row an `id`; {with_id.count(False)} of {len(with_id)} have none"
        raise DatasetError(f"row {row} has no id", where=dataset.uri, hint=hint)
    return samples


def _has_id(row: dict[str, Any]) -> bool:
    metadata = row.get("input_metadata")
    nested = metadata.get("row_id") if isinstance(metadata, dict) else None
    return nested is not None or any(row.get(key) is not None for key in ID_KEYS)


def _renamed(error: DatasetError, dataset: GoldenDataset) -> DatasetError:
    """The error about the dataset's own address, not the file in the cache, which nobody knows."""
    path = str(dataset.path)
    where = (error.where or path).replace(path, dataset.uri)
    # Here ids cannot be left out, as they can be where an adapter is given.
    hint = "give each row an `id` of its own" if "adapter=" in (error.hint or "") else error.hint
    return type(error)(error.message.replace(path, dataset.uri), where=where, hint=hint)
