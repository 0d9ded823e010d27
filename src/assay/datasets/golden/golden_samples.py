"""A fetched dataset read as samples: all of them, at least one."""

from assay.errors import DatasetError
from assay.types import Sample

from ..loader import load_samples
from .access_rules import GoldenDataset


def read_golden(dataset: GoldenDataset) -> tuple[Sample, ...]:
    """All samples of a golden dataset. Raises `DatasetError` naming the row of what is wrong.

    A row without an id gets the stable one that `load_samples` gives it.
    """
    try:
        samples = tuple(load_samples(dataset.path))
    except DatasetError as error:
        raise _rewrite_error(error, dataset) from error
    if not samples:
        raise DatasetError("the dataset contains no samples", where=dataset.uri)
    return samples


def _rewrite_error(error: DatasetError, dataset: GoldenDataset) -> DatasetError:
    """The error about the dataset's own address, not the file in the cache, which nobody knows."""
    path = str(dataset.path)
    where = (error.where or path).replace(path, dataset.uri)
    # There is no adapter to give here.
    hint = "give each row a unique `id`" if "adapter=" in (error.hint or "") else error.hint
    return type(error)(error.message.replace(path, dataset.uri), where=where, hint=hint)
