"""Filter expressions over the results of a run, such as `score < 1 and product = "lamp"`.

    seconds > 3                    a number: score, tokens, input_tokens, output_tokens, seconds,
                                   cost, repeat, metric.NAME
    status = completed             a text: status, failed, id, label, answer, expected, reason
    product = "lamp"               a column of the dataset row; row.score if the name is taken
    reason ~ "policy"              contains, ignoring case
    score = unknown                the value is unknown
    refund policy                  words that occur in label, answer, expected or reason
    not (a = 1 or b = 2) and c = 3

Parsing only; `result_table.py` translates the parsed filter for the databases.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from assay.errors import ConfigError

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "~"]
Kind = Literal["number", "text", "row", "metric"]

NUMBER_COLUMNS = (
    "score",
    "tokens",
    "input_tokens",
    "output_tokens",
    "seconds",
    "cost",
    "repeat",
)
TEXT_COLUMNS = ("status", "failed", "id", "label", "answer", "expected", "reason")
MAX_FILTER_CHARS = 1000
_MAX_TERMS = 20
_MAX_DEPTH = 10
_HINT = 'write for example: score < 1 and product = "lamp"'

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
      | `(?P<name>[^`]+)`
      | (?P<operator><=|>=|!=|==|=|<|>|~)
      | (?P<bracket>[()])
      | (?P<word>[^\s()<>=!~"'`]+)
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True)
class Column:
    """A column of the table: of every run, of the dataset row, or a metric."""

    kind: Kind
    name: str


SCORE = Column("number", "score")


@dataclass(frozen=True)
class ColumnComparison:
    """A column compared with a value; None if the value must be unknown."""

    column: Column
    operator: Operator
    value: str | float | None


@dataclass(frozen=True)
class Search:
    """Text that occurs in label, answer, expected or reason."""

    text: str


@dataclass(frozen=True)
class Group:
    """Filters of which all, any or none apply."""

    operator: Literal["and", "or", "not"]
    parts: tuple["Filter", ...]


Filter = ColumnComparison | Search | Group


def parse_filter(text: str) -> Filter | None:
    """Parse a filter expression; None for an empty one. Raises `ConfigError`."""
    if len(text) > MAX_FILTER_CHARS:
        raise ConfigError(
            f"the filter has {len(text)} characters; at most {MAX_FILTER_CHARS} are allowed"
        )
    tokens = _split_tokens(text)
    return _FilterParser(tokens).parse() if tokens else None


def parse_column(name: str) -> Column:
    """Return the column of this name. Raises `ConfigError` for an invalid one."""
    for prefix, kind in (("row.", "row"), ("metric.", "metric")):
        if name.startswith(prefix) and len(name) > len(prefix):
            return _check_name(cast(Kind, kind), name[len(prefix) :])
    if name in NUMBER_COLUMNS:
        return Column("number", name)
    if name in TEXT_COLUMNS:
        return Column("text", name)
    return _check_name("row", name)


def _check_name(kind: Kind, name: str) -> Column:
    # The path of a value inside JSON has no way to write these.
    if not name or '"' in name or "\\" in name or not name.isprintable():
        raise ConfigError(f"{name[:60]!r} cannot be used as the name of a column in a filter")
    return Column(kind, name)


def _split_tokens(text: str) -> list[tuple[str, str]]:
    tokens, at, text = [], 0, text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"the filter is invalid at {text[at : at + 20]!r}", hint=_HINT)
        kind = str(match.lastgroup)
        value = match[kind]
        if kind == "string":
            value = re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL)
        tokens.append((kind, value))
        at = match.end()
    return tokens


class _FilterParser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0
        self._terms = 0
        self._depth = 0

    def parse(self) -> Filter:
        found = self._parse_or()
        if self._at < len(self._tokens):
            raise ConfigError(f"the filter is invalid at {self._peek()[1][:20]!r}", hint=_HINT)
        return found

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else ("end", "")

    def _take(self) -> tuple[str, str]:
        token = self._peek()
        if token[0] == "end":
            raise ConfigError("the filter ends too early", hint=_HINT)
        self._at += 1
        return token

    def _is_keyword(self, word: str) -> bool:
        return self._peek()[0] == "word" and self._peek()[1].lower() == word

    def _parse_or(self) -> Filter:
        parts = [self._parse_and()]
        while self._is_keyword("or"):
            self._take()
            parts.append(self._parse_and())
        return parts[0] if len(parts) == 1 else Group("or", tuple(parts))

    def _parse_and(self) -> Filter:
        parts = [self._parse_term()]
        while True:
            if self._is_keyword("and"):
                self._take()
            # Terms without an operator between them must all apply, as in a search.
            elif self._peek() in (("end", ""), ("bracket", ")")) or self._is_keyword("or"):
                return parts[0] if len(parts) == 1 else Group("and", tuple(parts))
            parts.append(self._parse_term())

    def _parse_term(self) -> Filter:
        self._terms += 1
        if self._terms > _MAX_TERMS:
            raise ConfigError(f"the filter has more than {_MAX_TERMS} terms")
        if self._is_keyword("not"):
            self._take()
            return Group("not", (self._nest(self._parse_term),))
        kind, value = self._take()
        if (kind, value) == ("bracket", "("):
            found = self._nest(self._parse_or)
            if self._take() != ("bracket", ")"):
                raise ConfigError("a bracket of the filter is not closed", hint=_HINT)
            return found
        if kind in ("word", "name") and self._peek()[0] == "operator":
            return self._parse_comparison(value)
        if kind in ("word", "string", "name"):
            return Search(value)
        raise ConfigError(f"the filter is invalid at {value[:20]!r}", hint=_HINT)

    def _nest(self, parse: Callable[[], Filter]) -> Filter:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ConfigError(f"the filter is nested deeper than {_MAX_DEPTH} levels")
        found = parse()
        self._depth -= 1
        return found

    def _parse_comparison(self, name: str) -> ColumnComparison:
        column = parse_column(name)
        written = self._take()[1]
        operator = cast(Operator, "=" if written == "==" else written)
        kind, text = self._take()
        if kind not in ("word", "string", "name"):
            raise ConfigError(f"a value is missing after `{name} {written}`", hint=_HINT)
        if kind == "word" and text.lower() in ("unknown", "null", "none"):
            if operator not in ("=", "!="):
                raise ConfigError(f"`{operator}` cannot be used with {text}", hint=_HINT)
            return ColumnComparison(column, operator, None)
        number = _parse_bound(text) if kind == "word" else None
        if column.kind in ("number", "metric"):
            if number is None or operator == "~":
                raise ConfigError(
                    f"{name} is compared with a number, not with `{operator} {text[:20]}`",
                    hint=f"write for example: {name} < 1",
                )
            return ColumnComparison(column, operator, number)
        if operator == "~" or column.kind == "text" or number is None:
            return ColumnComparison(column, operator, text)
        return ColumnComparison(column, operator, number)


def _parse_bound(text: str) -> float | None:
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d{1,3})?", text, re.ASCII):
        return None
    value = float(text)
    return value if abs(value) < 1e300 else None
