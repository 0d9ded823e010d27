"""Answers to the same input, brought together on disk: they need not be neighbours in a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from assay.formats import asked_of, turns_of
from assay.types import Sample

from .content_digests import conversation_digest, digest_of, temporary_database

_TABLE = """
CREATE TABLE member (
    number INTEGER PRIMARY KEY, place INTEGER, score REAL, id TEXT, body TEXT
)
"""
_INDEX = "CREATE INDEX by_place ON member (place, score)"
_PLACES = "CREATE TABLE place (digest BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID"


def group_key(sample: Sample, *, same_context: bool) -> bytes:
    """Equal for answers to the same input, judged by the same scorer.

    The id alone would mix inputs: tests of one session, and files put together, repeat ids.
    `same_context` parts answers to what an environment showed differently, too.
    """
    extra = sample.__pydantic_extra__ or {}
    group = sample.id if sample.group_index is None else sample.group_index
    asked = conversation_digest(asked_of(sample)).hex()
    context = conversation_digest(turns_of(sample).context).hex() if same_context else ""
    return digest_of([str(extra.get("test", "")), group, asked, context])


@dataclass(frozen=True)
class Group:
    """The best and the worst of the answers to one input; the first of them where scores tie."""

    best: Sample
    worst: Sample | None
    """None where no answer is worse than the best."""

    others: tuple[str, ...]
    """Ids of the rest."""


class Groups:
    """Samples with scores, by group. Holds one group in memory at a time."""

    def __init__(self) -> None:
        self._database = temporary_database()
        for statement in (_TABLE, _PLACES, "BEGIN"):
            self._database.execute(statement)
        self._count = 0

    def add(self, key: bytes, sample: Sample) -> None:
        found = self._database.execute("SELECT place FROM place WHERE digest = ?", (key,))
        known = found.fetchone()
        place = self._count if known is None else known[0]
        if known is None:
            self._database.execute("INSERT INTO place VALUES (?, ?)", (key, place))
        self._database.execute(
            "INSERT INTO member VALUES (?, ?, ?, ?, ?)",
            (self._count, place, sample.reward, sample.id, sample.to_json()),
        )
        self._count += 1

    def __iter__(self) -> Iterator[Group]:
        """Each group, in the order of their first members."""
        self._database.execute(_INDEX)
        places = self._database.execute("SELECT DISTINCT place FROM member ORDER BY place")
        for (place,) in places:
            yield self._group(place)

    def _group(self, place: int) -> Group:
        members = self._database.execute(
            "SELECT number, score, id FROM member WHERE place = ? ORDER BY number", (place,)
        ).fetchall()
        # A missing score is worse than any: it is only there where no score was asked for.
        ranked = [(float("-inf") if score is None else score) for _, score, _ in members]
        best, worst = ranked.index(max(ranked)), ranked.index(min(ranked))
        others = tuple(name for n, (_, _, name) in enumerate(members) if n not in (best, worst))
        lower = None if best == worst else self._body(members[worst][0])
        return Group(best=self._body(members[best][0]), worst=lower, others=others)

    def _body(self, number: int) -> Sample:
        found = self._database.execute("SELECT body FROM member WHERE number = ?", (number,))
        return Sample.from_json(found.fetchone()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()
