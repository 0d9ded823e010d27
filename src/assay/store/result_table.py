"""Pages of a run's results in any order, filtered, counted and grouped by the database.

Pages are found by key, not by offset: each costs the same, however many rows are before it. All
values are bound parameters.
"""

import base64
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from assay.errors import ConfigError

from .database import Database, Transaction
from .excerpts import build_excerpt, to_column_text
from .insert_rows import NO_POSITION
from .insertion import compute_first_result_no
from .result_filter import SCORE, ColumnComparison, Filter, parse_column, parse_filter
from .result_reader import IS_FINAL_FAILURE, parse_sample
from .table_sql import Sql, TableSql

MAX_PAGE_ROWS = 500
MAX_GROUPS = 100
DATASET_ORDER = "position"
_ROWS_READ_FOR_FIELDS = 50
# Many callers need the first rows only.
_FIRST_PAGE_ROWS = 20
_MAX_CURSOR_CHARS = 3000


@dataclass(frozen=True)
class TableQuery:
    """Which results to show, and in which order."""

    filter: str = ""
    """An expression such as `score < 1`; see `result_filter.py`."""

    sort: str = DATASET_ORDER
    """`position`, the order of the dataset, or the name of a column. Unknown values come last."""

    descending: bool = False


@dataclass(slots=True)
class TableRow:
    """One result, or one sample that failed and has none, with its excerpt."""

    key: str
    sample_id: str
    repeat: int
    index: int | None
    status: str
    score: float | None
    """None for an unscored result."""

    boundary: str | None
    """The boundary at which the sample failed. None for a result."""

    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    latency_s: float | None
    cached: bool
    recorded_at: float
    metrics: dict[str, float | None]
    label: str
    answer: str
    expected: str
    reason: str
    fields: dict[str, Any]
    """Scalar fields of the dataset row."""

    cursor: str = ""
    """The place of this row in the order of its page."""


@dataclass(frozen=True)
class TablePage:
    """One page of a table."""

    rows: tuple[TableRow, ...]
    next: str | None
    """Pass as `after` to read the next page; None on the last one."""

    previous: str | None
    """Pass as `before` to read the previous page; None on the first one."""


@dataclass(frozen=True)
class TableGroup:
    """Results with the same value in one column."""

    value: str | float | None
    results: int
    scored: int
    mean: float | None
    """The mean of the scored results; None if there are none."""

    failed: int


@dataclass(frozen=True)
class _Phase:
    """A part of the order: rows that meet a condition, by a value or in dataset order."""

    condition: Sql
    value: Sql | None = None


class _RowPlace(NamedTuple):
    """The place of a row in an order: the phase, and the values that the order compares."""

    phase: int
    key: tuple[Any, ...]
    failures: bool = False


class ResultTable:
    """The results of one run as a table."""

    def __init__(self, database: Database, run_no: int) -> None:
        self._database = database
        self._run_no = run_no

    def read_page(
        self,
        query: TableQuery,
        *,
        size: int = 100,
        after: str | None = None,
        before: str | None = None,
    ) -> TablePage:
        """Read the first page, or the one after or before a cursor. Raises `ConfigError`."""
        if not 0 < size <= MAX_PAGE_ROWS:
            raise ConfigError(f"a page has 1 to {MAX_PAGE_ROWS} rows, not {size}")
        backwards = before is not None
        given = before if backwards else after
        wanted = None if not given else _decode_cursor(given)
        with self._database.read_transaction() as transaction:
            reader = _PageReader(transaction, self._run_no, query, backwards=backwards)
            found = reader.read(wanted, size + 1)
            rows = reader.complete(found[:size])
        more = len(found) > size
        if backwards:
            rows.reverse()
        first, last = (rows[0].cursor, rows[-1].cursor) if rows else (None, None)
        return TablePage(
            tuple(rows),
            next=last if more or backwards else None,
            previous=first if (more if backwards else wanted is not None) else None,
        )

    def rows(self, query: TableQuery) -> Iterator[TableRow]:
        """Yield all rows of a query, with one page in memory."""
        after, size = None, _FIRST_PAGE_ROWS
        while True:
            page = self.read_page(query, size=size, after=after)
            yield from page.rows
            if page.next is None:
                return
            after, size = page.next, MAX_PAGE_ROWS

    def find_neighbours(self, key: str, query: TableQuery) -> tuple[str | None, str | None]:
        """Return the keys before and after a result in a table; None at its ends.

        Both are None if the filter excludes the result itself.
        """
        found: list[str | None] = []
        with self._database.read_transaction() as transaction:
            for backwards in (True, False):
                reader = _PageReader(transaction, self._run_no, query, backwards=backwards)
                place = reader.locate(key)
                if place is None:
                    return None, None
                near = reader.complete(reader.read(place, 1))
                found.append(near[0].key if near else None)
        return found[0], found[1]

    def count_rows(self, filter_text: str = "") -> int:
        """Return how many results, and samples that failed without one, a filter selects."""
        wanted, total = parse_filter(filter_text), 0
        with self._database.read_transaction() as transaction:
            for failures in _choose_sources(transaction, self._run_no):
                sql = TableSql(transaction.is_postgresql, failures=failures)
                scan = not (isinstance(wanted, ColumnComparison) and wanted.column == SCORE)
                condition = _build_condition(sql, self._run_no, wanted, scan=scan)
                query = f"SELECT count(*) FROM {sql.source}{sql.join_if_needed(condition.text)}"
                total += transaction.execute(
                    f"{query} WHERE {condition.text}", *condition.values
                ).scalar()
        return total

    def group_rows(self, column: str, filter_text: str = "") -> tuple[list[TableGroup], bool]:
        """Return the largest groups by one column, and whether there are more."""
        wanted, by = parse_filter(filter_text), parse_column(column)
        counted: dict[Any, list[Any]] = {}
        with self._database.read_transaction() as transaction:
            for failures in _choose_sources(transaction, self._run_no):
                sql = TableSql(transaction.is_postgresql, failures=failures)
                value = sql.group(by)
                condition = _build_condition(sql, self._run_no, wanted, scan=True)
                score = sql.score_value()
                joined = sql.join_if_needed(f"{value.text} {condition.text}")
                rows = transaction.execute(
                    f"SELECT {value.text} AS value, count(*) AS results, count({score}) AS scored, "
                    f"sum({score}) AS total FROM {sql.source}{joined} WHERE {condition.text} "
                    # A bound parameter in GROUP BY would be another one than in SELECT.
                    "GROUP BY 1 ORDER BY 2 DESC LIMIT ?",
                    *value.values,
                    *condition.values,
                    10 * MAX_GROUPS,
                ).all()
                for row in rows:
                    sums = counted.setdefault(
                        None if row.value == "" else row.value, [0, 0, 0.0, 0]
                    )
                    sums[0] += row.results
                    sums[1] += row.scored
                    sums[2] += row.total or 0.0
                    sums[3] += row.results if failures else 0
        groups = [
            TableGroup(value, results, scored, total / scored if scored else None, failed)
            for value, (results, scored, total, failed) in counted.items()
        ]
        groups.sort(key=lambda group: (-group.results, str(group.value)))
        return groups[:MAX_GROUPS], len(groups) > MAX_GROUPS

    def read_field_names(self) -> list[str]:
        """Return the names of the dataset's columns, as far as the first results have them."""
        query = (
            "SELECT e.fields FROM assay_excerpt e WHERE e.result_no > ? AND e.result_no < ? "
            f"ORDER BY e.result_no LIMIT {_ROWS_READ_FOR_FIELDS}"
        )
        first, end = (compute_first_result_no(self._run_no + each) for each in (0, 1))
        with self._database.read_transaction() as transaction:
            texts = transaction.execute(query, first, end).scalars()
        return list(dict.fromkeys(name for text in texts if text for name in json.loads(text)))

    def has_excerpts(self) -> bool:
        """Whether texts and dataset columns can be searched: not in results of older versions."""
        # Results get ascending numbers, so that the first one is the oldest.
        query = (
            "SELECT t.result_no AS first, e.result_no AS known FROM assay_result t "
            "LEFT JOIN assay_excerpt e ON e.result_no = t.result_no "
            "WHERE t.result_no > ? AND t.result_no < ? ORDER BY t.result_no LIMIT 1"
        )
        first, end = (compute_first_result_no(self._run_no + each) for each in (0, 1))
        with self._database.read_transaction() as transaction:
            row = transaction.execute(query, first, end).first()
        return row is None or row.known is not None


class _PageReader:
    """Reads rows in one order and direction, inside one transaction."""

    def __init__(
        self, transaction: Transaction, run_no: int, query: TableQuery, *, backwards: bool
    ) -> None:
        self._transaction = transaction
        self._run_no = run_no
        self._filter = parse_filter(query.filter)
        self._sort = query.sort
        self._sources = _choose_sources(transaction, run_no)
        # Unknown values come last in both orders, so that phases keep theirs.
        self._descending = query.descending
        self._backwards = backwards

    def read(self, cursor: _RowPlace | None, limit: int) -> list[_RowPlace]:
        """Return the places of the rows past the cursor."""
        count = self._count_phases()
        if cursor is not None and not 0 <= cursor.phase < count:
            raise ConfigError("the cursor of the page is invalid", hint="open the first page")
        order = range(count - 1, -1, -1) if self._backwards else range(count)
        found: list[_RowPlace] = []
        for phase in order:
            if cursor is not None and (
                phase > cursor.phase if self._backwards else phase < cursor.phase
            ):
                continue
            past = cursor.key if cursor is not None and cursor.phase == phase else None
            found += self._read_phase(phase, past, limit - len(found))
            if len(found) >= limit:
                break
        return found

    def locate(self, key: str) -> _RowPlace | None:
        """Return the cursor of a result; None if the filter excludes it."""
        only = Sql("t.key = ?", (to_column_text(key),))
        for phase in range(self._count_phases()):
            if found := self._read_phase(phase, None, 1, only=only):
                return found[0]
        return None

    def complete(self, found: Sequence[_RowPlace]) -> list[TableRow]:
        """Read the rows at these places, with excerpts from bodies where none are stored."""
        # Apart from the search for places: sorting whole rows would read the excerpts of all.
        rows: dict[tuple[bool, int], Any] = {}
        for failures in self._sources:
            numbers = [place.key[-1] for place in found if place.failures == failures]
            if not numbers:
                continue
            sql = TableSql(self._transaction.is_postgresql, failures=failures)
            marks = ", ".join("?" * len(numbers))
            query = (
                f"SELECT {sql.columns} FROM {sql.source}{sql.join_excerpts} "
                f"WHERE {sql.number} IN ({marks})"
            )
            for row in self._transaction.execute(query, *numbers).all():
                rows[failures, row.number] = row
        return [
            _parse_table_row(self._transaction, row, _encode_cursor(place))
            for place in found
            if (row := rows.get((place.failures, place.key[-1]))) is not None
        ]

    def _count_phases(self) -> int:
        return len(self._build_phases(TableSql(self._transaction.is_postgresql, failures=False)))

    def _build_phases(self, sql: TableSql) -> list[_Phase]:
        if self._sort == DATASET_ORDER:
            return [_Phase(Sql("TRUE"))]
        values = sql.sort(parse_column(self._sort))
        phases = [_Phase(condition, value) for condition, value in values]
        if self._descending:
            phases.reverse()
        unknown = " AND ".join(f"NOT ({phase.condition.text})" for phase in phases)
        bound = tuple(each for phase in phases for each in phase.condition.values)
        return [*phases, _Phase(Sql(unknown, bound))]

    def _read_phase(
        self, number: int, past: tuple[Any, ...] | None, limit: int, *, only: Sql | None = None
    ) -> list[_RowPlace]:
        merged: list[_RowPlace] = []
        descending = self._is_descending(number) != self._backwards
        for failures in self._sources:
            sql = TableSql(self._transaction.is_postgresql, failures=failures)
            phase = self._build_phases(sql)[number]
            # Only the order of the dataset and that of scores have an index.
            scan = phase.value is not None and self._sort != SCORE.name and only is None
            condition = _build_condition(sql, self._run_no, self._filter, scan=scan)
            order = _build_order(sql, phase)
            parts = [condition, phase.condition, *([] if only is None else [only])]
            if past is not None:
                if len(past) != len(order):
                    raise ConfigError(
                        "the cursor of the page is invalid", hint="open the first page"
                    )
                marks = ", ".join("?" * len(past))
                columns = ", ".join(each.text for each in order)
                bound = tuple(value for each in order for value in each.values)
                parts.append(
                    Sql(f"({columns}) {'<' if descending else '>'} ({marks})", (*bound, *past))
                )
            direction = " DESC" if descending else ""
            named = [f"{each.text} AS order_{at}" for at, each in enumerate(order)]
            # By number: a bound parameter in ORDER BY would be another one than in SELECT.
            places = ", ".join(f"{each + 1}{direction}" for each in range(len(order)))
            if not any(each.values for each in order):
                # By expression, which the databases match with their indexes.
                places = ", ".join(f"{each.text}{direction}" for each in order)
            text = f"{', '.join(named)} {' '.join(each.text for each in parts)}"
            rows = self._transaction.execute(
                f"SELECT {', '.join(named)} FROM {sql.source}{sql.join_if_needed(text)} "
                f"WHERE {' AND '.join(f'({each.text})' for each in parts)} "
                f"ORDER BY {places} LIMIT ?",
                *(value for each in order for value in each.values),
                *(value for each in parts for value in each.values),
                limit,
            ).all()
            merged += [_RowPlace(number, tuple(row), failures) for row in rows]
        if len(self._sources) > 1:
            merged.sort(key=lambda place: place.key, reverse=descending)
        return merged[:limit]

    def _is_descending(self, phase: int) -> bool:
        # The last phase has the rows with unknown values, always in dataset order.
        last = self._sort != DATASET_ORDER and phase == self._count_phases() - 1
        return self._descending and not last


def _choose_sources(transaction: Transaction, run_no: int) -> list[bool]:
    """Return False for the results, and True for failed samples if there may be some."""
    query = "SELECT attempts FROM assay_tally WHERE run_no = ?"
    return [False, True] if transaction.execute(query, run_no).scalar() else [False]


def _build_condition(
    sql: TableSql, run_no: int, wanted: Filter | None, *, scan: bool = False
) -> Sql:
    """Return the condition of the rows; with `scan`, of all rows in the order they are stored."""
    parts, values = ["t.run_no = ?"], [run_no]
    if sql.failures:
        parts.append(IS_FINAL_FAILURE)
    elif scan:
        # By the run's range of numbers: through an index, each row would be looked up by itself.
        parts = ["t.result_no > ? AND t.result_no < ?"]
        values = [compute_first_result_no(run_no), compute_first_result_no(run_no + 1)]
    if wanted is not None:
        condition = sql.translate(wanted)
        parts.append(f"({condition.text})")
        return Sql(" AND ".join(parts), (*values, *condition.values))
    return Sql(" AND ".join(parts), tuple(values))


def _build_order(sql: TableSql, phase: _Phase) -> list[Sql]:
    number = Sql(sql.number)
    if phase.value is None:
        return [Sql("t.position"), Sql("t.sample_id"), Sql("t.repeat"), number]
    return [phase.value, Sql("t.position"), number]


def _parse_table_row(transaction: Transaction, row: Any, cursor: str) -> TableRow:
    excerpt: Any = row
    if not (row.label or row.answer or row.expected or row.fields):
        # Recorded by an older version, or copied by one.
        excerpt = _read_excerpt(transaction, row)
    return TableRow(
        key=row.key,
        sample_id=row.sample_id,
        repeat=row.repeat,
        index=None if row.position == NO_POSITION else row.position,
        status=row.status,
        score=row.score,
        boundary=row.boundary,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cost_usd=row.cost_usd,
        latency_s=row.latency_s,
        cached=bool(row.cached),
        recorded_at=row.recorded_at,
        metrics=json.loads(row.metrics) if row.metrics else {},
        label=excerpt.label,
        answer=excerpt.answer,
        expected=excerpt.expected,
        reason=excerpt.reason,
        fields=json.loads(excerpt.fields) if excerpt.fields else {},
        cursor=cursor,
    )


def _read_excerpt(transaction: Transaction, row: Any) -> Any:
    if row.boundary is None:
        query = "SELECT ? AS key, codec, blob FROM assay_body WHERE result_no = ?"
    else:
        query = "SELECT ? AS key, codec, blob FROM assay_attempt WHERE attempt_no = ?"
    body = transaction.execute(query, row.key, row.number).first()
    return build_excerpt(parse_sample(body, where=f"key {row.key}"))


def _encode_cursor(cursor: _RowPlace) -> str:
    text = json.dumps([cursor.phase, *cursor.key], separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _decode_cursor(text: str) -> _RowPlace:
    invalid = ConfigError("the cursor of the page is invalid", hint="open the first page")
    if len(text) > _MAX_CURSOR_CHARS:
        raise invalid
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        values = json.loads(base64.urlsafe_b64decode(padded))
    except (ValueError, RecursionError):
        raise invalid from None
    if not isinstance(values, list) or not 3 < len(values) < 6 or type(values[0]) is not int:
        raise invalid
    # The last parts are numbers of rows; the others are what the order compares.
    if any(type(each) not in (int, float, str) for each in values):
        raise invalid
    if type(values[-1]) is not int or not all(
        abs(each) < 2**63 for each in values if type(each) is int
    ):
        raise invalid
    return _RowPlace(values[0], tuple(values[1:]))
