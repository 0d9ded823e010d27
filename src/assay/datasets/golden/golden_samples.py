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
