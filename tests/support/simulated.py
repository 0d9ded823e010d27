"""Runs drawn at random, with fixed seeds: how often a method errs is counted over many of them."""

from typing import Any

import numpy

from assay.stats.sample_pairs import PairedScores

Numbers = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


def chances(generator: numpy.random.Generator, n: int, p: float, *, mixed: bool = False) -> Numbers:
    """How likely each sample succeeds: all alike, or easy and hard ones."""
    return generator.beta(2 * p, 2 * (1 - p), n) if mixed else numpy.full(n, p)


def scores(generator: numpy.random.Generator, likely: Numbers, repeats: int) -> Numbers:
    """Scores of 0 and 1: one row for each sample, one column for each repeat."""
    return (generator.random((len(likely), repeats)) < likely[:, None]).astype(float)


def paired(a: Numbers, b: Numbers) -> PairedScores:
    found = PairedScores()
    for of_a, of_b in zip(a.tolist(), b.tolist(), strict=True):
        found.add(of_a, of_b)
    return found


def is_worse(found: PairedScores, alpha: float = 0.05) -> bool:
    p_value = found.test(0).p_value
    return p_value is not None and p_value <= alpha and sum(found.differences) < 0
