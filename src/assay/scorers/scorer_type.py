"""The type of scorers."""

from collections.abc import Callable

from assay.types import EvaluateResult, Sample

Scorer = Callable[[Sample], EvaluateResult]
"""A function from a sample to its result. It does not change the sample."""
