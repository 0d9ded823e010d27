"""Columns, filters and orders of a table of results, as SQL for SQLite or PostgreSQL."""

import re
from typing import NamedTuple

from .excerpts import to_column_text
from .result_filter import SCORE, Column, ColumnComparison, Filter, Search

_OPERATORS = {"=": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_SEARCHED = ("label", "answer", "expected", "reason", "id")
_UNKNOWN_NUMBER = "CAST(NULL AS DOUBLE PRECISION)"
_UNKNOWN_TEXT = "CAST(NULL AS TEXT)"


class Sql(NamedTuple):
    """A part of a statement, and the values of its `?`."""

    text: str
    values: tuple[object, ...] = ()


class TableSql:
    """The SQL of one source: the results of runs as `t`, or the failed attempts as `t`."""

    def __init__(self, is_postgresql: bool, *, failures: bool) -> None:
        self._is_postgresql = is_postgresql
        self.failures = failures
        excerpt = "t" if failures else "e"
        self._texts = {
            "status": "t.status",
            "failed": "t.boundary" if failures else _UNKNOWN_TEXT,
            "id": "t.sample_id",
            "label": f"NULLIF({excerpt}.label, '')",
            "answer": f"NULLIF({excerpt}.answer, '')",
            "expected": f"NULLIF({excerpt}.expected, '')",
            "reason": "(t.kind || ': ' || t.message)" if failures else "NULLIF(e.reason, '')",
        }
        self._numbers = {
            "score": _UNKNOWN_NUMBER if failures else "t.score",
            "tokens": "(t.input_tokens + t.output_tokens)",
            "input_tokens": "t.input_tokens",
            "output_tokens": "t.output_tokens",
            "seconds": "t.latency_s",
            "cost": "t.cost_usd",
            "repeat": "t.repeat",
        }
        self._fields = f"NULLIF({excerpt}.fields, '')"

    @property
    def source(self) -> str:
        return "assay_attempt t" if self.failures else "assay_result t"

    @property
    def join_excerpts(self) -> str:
        if self.failures:
            return ""
        return " LEFT JOIN assay_excerpt e ON e.result_no = t.result_no"

    def join_if_needed(self, text: str) -> str:
        """Return the join of excerpts if `text` uses them: narrow rows alone are read faster."""
        return self.join_excerpts if re.search(r"\be\.", text) else ""

    @property
    def number(self) -> str:
        return "t.attempt_no" if self.failures else "t.result_no"

    @property
    def columns(self) -> str:
        """The columns of `TableRow`, and the number of the row."""
        excerpt = "t" if self.failures else "e"
        shared = (
            "t.key, t.sample_id, t.repeat, t.position, t.status, t.input_tokens, t.output_tokens, "
            "t.cost_usd, t.latency_s, t.cached, t.recorded_at, "
            f"{excerpt}.label, {excerpt}.answer, {excerpt}.expected, {excerpt}.fields"
        )
        other = (
            f"t.boundary, {_UNKNOWN_NUMBER} AS score, {_UNKNOWN_TEXT} AS metrics, "
            f"{self._texts['reason']} AS reason"
            if self.failures
            else f"{_UNKNOWN_TEXT} AS boundary, {self.score_value()} AS score, t.metrics, e.reason"
        )
        return f"{shared}, {other}, {self.number} AS number"

    def score_value(self) -> str:
        """The score of a scored result, else NULL."""
        return _UNKNOWN_NUMBER if self.failures else "CASE WHEN t.valid THEN t.score END"

    def sort(self, column: Column) -> list[tuple[Sql, Sql]]:
        """Return the conditions and values of an ascending order, without unknown values."""
        if column == SCORE:
            if self.failures:
                return [(Sql("FALSE"), Sql(_UNKNOWN_NUMBER))]
            # Exactly the condition of the index.
            return [(Sql("t.valid AND t.score IS NOT NULL"), Sql("t.score"))]
        if column.kind in ("number", "metric"):
            value = self._number(column)
            return [(Sql(f"{value.text} IS NOT NULL", value.values), value)]
        text = self._text(column)
        known = Sql(f"{text.text} IS NOT NULL", text.values)
        if column.kind == "text":
            return [(known, text)]
        # Columns of a dataset may mix numbers and texts: numbers come first, by their value.
        number = self._number(column)
        is_number = Sql(f"{number.text} IS NOT NULL", number.values)
        is_text = Sql(f"{known.text} AND {number.text} IS NULL", (*known.values, *number.values))
        return [(is_number, number), (is_text, text)]

    def group(self, column: Column) -> Sql:
        """Return the value by which rows are grouped."""
        if column == SCORE:
            return Sql(self.score_value())
        return self._number(column) if column.kind in ("number", "metric") else self._text(column)

    def translate(self, wanted: Filter) -> Sql:
        """Return the condition of a filter."""
        if isinstance(wanted, ColumnComparison):
            return self._compare(wanted)
        if isinstance(wanted, Search):
            found = [self._contains(Sql(self._texts[name]), wanted.text) for name in _SEARCHED]
            return _join("OR", found)
        parts = [self.translate(part) for part in wanted.parts]
        if wanted.operator == "not":
            # A comparison with an unknown value is unknown, and so would be its opposite.
            return Sql(f"NOT coalesce({parts[0].text}, FALSE)", parts[0].values)
        return _join(wanted.operator.upper(), parts)

    def _compare(self, wanted: ColumnComparison) -> Sql:
        column, operator, value = wanted.column, wanted.operator, wanted.value
        if column == SCORE and not self.failures:
            return self._compare_score(wanted)
        numeric = column.kind in ("number", "metric") or isinstance(value, float)
        shown = self._number(column) if numeric else self._text(column)
        if value is None:
            missing = "IS NULL" if operator == "=" else "IS NOT NULL"
            return Sql(f"{shown.text} {missing}", shown.values)
        if operator == "~":
            return self._contains(shown, str(value))
        bound = value if isinstance(value, float) else to_column_text(value)
        condition = Sql(f"{shown.text} {_OPERATORS[operator]} ?", (*shown.values, bound))
        if operator != "!=":
            return condition
        return _join("OR", [condition, Sql(f"{shown.text} IS NULL", shown.values)])

    def _compare_score(self, wanted: ColumnComparison) -> Sql:
        if wanted.value is None:
            known = "(t.valid AND t.score IS NOT NULL)"
            return Sql(f"NOT {known}" if wanted.operator == "=" else known)
        condition = Sql(f"t.valid AND t.score {_OPERATORS[wanted.operator]} ?", (wanted.value,))
        return (
            condition if wanted.operator != "!=" else _join("OR", [condition, Sql("NOT t.valid")])
        )

    def _contains(self, value: Sql, text: str) -> Sql:
        escaped = to_column_text(text)
        for special in "!%_":
            escaped = escaped.replace(special, f"!{special}")
        like = "ILIKE" if self._is_postgresql else "LIKE"
        return Sql(f"{value.text} {like} ? ESCAPE '!'", (*value.values, f"%{escaped}%"))

    def _text(self, column: Column) -> Sql:
        if column.kind == "text":
            return Sql(self._texts[column.name])
        value = self._field(column)
        return value if self._is_postgresql else Sql(f"CAST({value.text} AS TEXT)", value.values)

    def _number(self, column: Column) -> Sql:
        if column.kind == "number":
            return Sql(self._numbers[column.name])
        value = self._field(column)
        if column.kind == "metric":
            return Sql(f"CAST({value.text} AS DOUBLE PRECISION)", value.values)
        # Rows of CSV files have texts only: those that look like numbers count as numbers.
        text = value.text
        if self._is_postgresql:
            # Without question marks, which would be taken for parameters.
            pattern = r"^-{0,1}[0-9]+([.][0-9]+){0,1}([eE][-+]{0,1}[0-9]+){0,1}$"
            shown = f"CASE WHEN {text} ~ '{pattern}' THEN CAST({text} AS DOUBLE PRECISION) END"
            return Sql(shown, value.values * 2)
        shown = (
            f"CASE WHEN typeof({text}) <> 'text' THEN {text} "
            f"WHEN {text} GLOB '*[0-9]*' AND ltrim({text}, '-') NOT GLOB '*[^.0-9]*' "
            f"AND {text} NOT GLOB '*.*.*' THEN CAST({text} AS REAL) END"
        )
        return Sql(shown, value.values * 6)

    def _field(self, column: Column) -> Sql:
        if column.kind == "metric":
            if self.failures:
                return Sql(_UNKNOWN_TEXT)
            source = "t.metrics"
        else:
            source = self._fields
        if self._is_postgresql:
            return Sql(f"(CAST({source} AS jsonb) ->> CAST(? AS TEXT))", (column.name,))
        return Sql(f"json_extract({source}, ?)", (f'$."{column.name}"',))


def _join(word: str, parts: list[Sql]) -> Sql:
    text = f" {word} ".join(f"({part.text})" for part in parts)
    return Sql(text, tuple(value for part in parts for value in part.values))
