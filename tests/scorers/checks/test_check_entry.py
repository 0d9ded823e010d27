"""Values of a check file: which are accepted, and how a refusal names the others."""

from typing import Any

import pytest
from pydantic import StrictBool

from assay.errors import ConfigError
from assay.scorers.checks.check_entry import CheckModel, Given, Number, Text, Texts, WholeNumber
from assay.types import YamlDocument, validate_document


class Entry(CheckModel):
    text: Given[Text] = None
    texts: Given[Texts] = None
    number: Given[Number] = None
    whole: Given[WholeNumber] = None
    flag: StrictBool = False


def read(**values: Any) -> Entry:
    return validate_document(YamlDocument(values, "c.yaml"), Entry)


@pytest.mark.parametrize(
    ("values", "refused"),
    [
        ({"text": 5}, "text: the value is 5, not text"),
        ({"text": ""}, "text: the text is empty"),
        ({"text": None}, "text: the value is null"),
        ({"number": "5"}, "number: the value is '5', not a number"),
        ({"number": True}, "number: the value is true, not a number"),
        ({"number": float("inf")}, "number: inf is not a finite number"),
        ({"whole": 1.5}, "whole: the value is 1.5, not a whole number"),
        ({"flag": 1}, "flag: the value is 1, neither true nor false"),
        ({"texts": {}}, "texts: the value is a mapping, not text"),
        ({"texts": []}, "texts: the list is empty"),
        ({"texts": ["a", 1]}, "texts[1]: the value is 1, not text"),
        ({"numbr": 1}, "numbr: unknown field\n  hint: did you mean 'number'?"),
    ],
)
def test_a_wrong_value_is_refused(values: dict[str, Any], refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(**values)

    assert str(caught.value).startswith(f"c.yaml: {refused}")


def test_a_right_value_is_given_back() -> None:
    assert read(text="a").text == "a"
    assert read(texts="a").texts == ("a",)
    assert read(texts=["a", "b"]).texts == ("a", "b")
    assert read(whole=10**400).whole == 10**400
    # Reasons quote a bound as it was written.
    assert repr(read(number=2).number) == "2"
    assert read().text is None
