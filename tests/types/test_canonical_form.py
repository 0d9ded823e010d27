"""Canonical JSON: as RFC 8785 has it, which another implementation confirms."""

import json
import math
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from assay.types.canonical_form import canonical

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(VALUES)
def test_every_value_is_written_as_others_write_it(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (1.5e300, "1.5e+300"),
    ],
)
def test_numbers_are_written_as_javascript_does(number: float, text: str) -> None:
    assert canonical(number) == text.encode()


def test_keys_are_sorted_by_their_utf_16_units() -> None:
    written = canonical({"\ufb01": 1, "\U0001f600": 2, "a": 3})

    assert list(json.loads(written)) == ["a", "\U0001f600", "\ufb01"]


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**53, {"a": object()}, b"x"])
def test_what_has_no_canonical_form_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"JSON|canonical"):
        canonical(value)
