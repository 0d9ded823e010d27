"""Datasets in: opened safely, streamed as samples."""

from .golden import FetchRules, GoldenDataset, fetch_golden, read_golden
from .limits import ReadLimits
from .load import Source, load_samples
from .stream import Adapter, OnBadRow, SampleStream, SkippedRows

__all__ = [
    "Adapter",
    "FetchRules",
    "GoldenDataset",
    "OnBadRow",
    "ReadLimits",
    "SampleStream",
    "SkippedRows",
    "Source",
    "fetch_golden",
    "load_samples",
    "read_golden",
]
