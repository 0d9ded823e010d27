"""Read a fetched dataset as samples: all of them, at least one."""

from assay.errors import DatasetError
from assay.types import Sample

from ..loader import load_samples
from .access_rules import GoldenDataset


def read_golden(dataset: GoldenDataset) -> tuple[Sample, ...]:
    """Read all samples of a golden dataset. Raises `DatasetError` with the invalid row.

    A row without an id gets a stable one, as in `load_samples`.
    """
    try:
        samples = tuple(load_samples(dataset.path))
    except DatasetError as error:
        raise _rewrite_error(error, dataset) from error
    if not samples:
        raise DatasetError("the dataset contains no samples", where=dataset.uri)
    return samples


def _rewrite_error(error: DatasetError, dataset: GoldenDataset) -> DatasetError:
    # Users know the address of the dataset, not the path of its copy in the cache.
    path = str(dataset.path)
    where = (error.where or path).replace(path, dataset.uri)
    # A certification takes no adapter.
    hint = "give each row a unique `id`" if "adapter=" in (error.hint or "") else error.hint
    return type(error)(error.message.replace(path, dataset.uri), where=where, hint=hint)
