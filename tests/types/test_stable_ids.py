"""Stable ids: equal data, equal id, whatever the spelling."""

import pytest

from assay.types import stable_id
from assay.types.stable_ids import encode_stable_json


def test_key_order_and_python_types_do_not_matter() -> None:
    assert stable_id({"a": [1, 2], "b": "é"}) == stable_id({"b": "é", "a": (1, 2)})


def test_values_that_differ_have_different_ids() -> None:
    assert len({stable_id(value) for value in (1, 1.5, "1", None, [], {}, [1], {"a": 1})}) == 8


def test_the_canonical_form_is_plain_ascii() -> None:
    assert encode_stable_json({"b": "é", "a": None}) == b'{"a":null,"b":"\\u00e9"}'


def test_a_number_that_json_does_not_know_has_no_id() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        stable_id({"x": float("nan")})
