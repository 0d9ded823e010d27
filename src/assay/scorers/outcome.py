"""Convert the return value of a user's scorer to a result."""

import math
from numbers import Real
from typing import cast

from assay.errors import ScorerFault
from assay.types import EvaluateResult, Sample, construct_unchecked

_NUMBERS = frozenset({float, int, bool})


def read_outcome(value: object) -> EvaluateResult:
    """Convert a result, a number, a bool, or the sample with its result set, to a result.

    Raises `ScorerFault` for anything else: it is never read as 0.0.
    """
    # Numbers first, the usual ones by their type: asking whether a float is a `Real`, or a model,
    # costs as much as making a result of it.
    if type(value) in _NUMBERS or isinstance(value, Real):
        number = float(cast(Real, value))
        if not math.isfinite(number):
            raise ScorerFault(f"the scorer returned {number}", hint="a score is a finite number")
        return construct_unchecked(EvaluateResult, {"score": number})
    if isinstance(value, EvaluateResult):
        return value
    if isinstance(value, Sample):
        if value.score is None:
            raise ScorerFault("the scorer returned the sample without setting its `score`")
        return value.score
    # NumPy's bool is not a `Real`, and neither are arrays and tensors without dimensions.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        alone = value.item()
        if type(alone) in _NUMBERS:
            return read_outcome(alone)
    if value is None:
        raise ScorerFault(
            "the scorer returned None",
            hint="return an EvaluateResult, a number or a bool; a test that only asserts ends with "
            "`return True`",
        )
    raise ScorerFault(
        f"the scorer returned a {type(value).__name__}",
        hint="return an EvaluateResult, a number or a bool",
    )
