"""Filter expressions: what they mean, and which ones are refused."""

import pytest

from assay.errors import ConfigError
from assay.store.result_filter import Column, ColumnComparison, Filter, Group, Search, parse_filter

SCORE = Column("number", "score")
PRODUCT = Column("row", "product")

MEANINGS: dict[str, Filter | None] = {
    "": None,
    "  ": None,
    "score < 1": ColumnComparison(SCORE, "<", 1.0),
    "score<=.5": ColumnComparison(SCORE, "<=", 0.5),
    "score == 1e-3": ColumnComparison(SCORE, "=", 0.001),
    "score = unknown": ColumnComparison(SCORE, "=", None),
    'product = "la\\"mp"': ColumnComparison(PRODUCT, "=", 'la"mp'),
    "product = 5": ColumnComparison(PRODUCT, "=", 5.0),
    "product = '5'": ColumnComparison(PRODUCT, "=", "5"),
    "product ~ 5": ColumnComparison(PRODUCT, "~", "5"),
    "row.score > 1": ColumnComparison(Column("row", "score"), ">", 1.0),
    "metric.tone >= 1": ColumnComparison(Column("metric", "tone"), ">=", 1.0),
    "`two words` = 1": ColumnComparison(Column("row", "two words"), "=", 1.0),
    "id = 5": ColumnComparison(Column("text", "id"), "=", "5"),
    "refund": Search("refund"),
    "'two words'": Search("two words"),
    "score < 1 refund": Group("and", (ColumnComparison(SCORE, "<", 1.0), Search("refund"))),
    "a or b and c": Group("or", (Search("a"), Group("and", (Search("b"), Search("c"))))),
    "(a or b) AND not c": Group(
        "and", (Group("or", (Search("a"), Search("b"))), Group("not", (Search("c"),)))
    ),
    "größe = 5": ColumnComparison(Column("row", "größe"), "=", 5.0),
}


@pytest.mark.parametrize(("text", "meaning"), MEANINGS.items())
def test_expressions_are_parsed(text: str, meaning: Filter | None) -> None:
    assert parse_filter(text) == meaning


REFUSED = {
    "score <": "ends too early",
    "score < high": "compared with a number",
    "score ~ 1": "compared with a number",
    "score < unknown": "cannot be used with unknown",
    "< 1": "invalid at '<'",
    "(a": "ends too early",
    "a)": "invalid at '\\)'",
    "a or": "ends too early",
    "not": "ends too early",
    'a = "b': "invalid at",
    '`a"b` = 1': "cannot be used as the name",
    "a = = 1": "a value is missing",
    "(" * 11 + "a" + ")" * 11: "nested deeper",
    " ".join(["a"] * 21): "more than 20 terms",
    "a" * 1001: "at most 1000",
    "not " * 15 + "a": "nested deeper",
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.items())
def test_what_is_no_expression_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse_filter(text)
