"""Datasets in: opened safely, streamed as samples."""

from .limits import ReadLimits
from .load import Source, load_samples
from .stream import Adapter, OnBadRow, SampleStream, SkippedRows

__all__ = [
    "Adapter",
    "OnBadRow",
    "ReadLimits",
    "SampleStream",
    "SkippedRows",
    "Source",
    "load_samples",
]
