"""What every scorer is."""

from collections.abc import Callable

from assay.types import EvaluateResult, Sample

Scorer = Callable[[Sample], EvaluateResult]
"""Judges one sample. It changes nothing, and decides nothing about the run."""
