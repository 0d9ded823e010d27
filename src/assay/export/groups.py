"""Group answers to the same input on disk: they need not be adjacent in a file."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from assay.formats import get_prompt_messages, split_agent_turns
from assay.types import Sample

from .content_digests import digest_conversation, digest_json, open_temporary_database

_CREATE_MEMBERS = """
CREATE TABLE member (
    number INTEGER PRIMARY KEY, place INTEGER, score REAL, id TEXT, body TEXT
)
"""
_CREATE_MEMBER_INDEX = "CREATE INDEX by_place ON member (place, score)"
_CREATE_PLACES = "CREATE TABLE place (digest BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID"


def compute_group_key(sample: Sample, *, same_context: bool) -> bytes:
    """Return a key that is equal for answers to the same input, judged by the same scorer.

    With `same_context` answers after different observations of an environment have different keys.
    """
    # The id alone would mix inputs: the tests of one session, and concatenated files, repeat ids.
    extra = sample.__pydantic_extra__ or {}
    group = sample.id if sample.group_index is None else sample.group_index
    asked = digest_conversation(get_prompt_messages(sample)).hex()
    context = digest_conversation(split_agent_turns(sample).context).hex() if same_context else ""
    return digest_json([str(extra.get("test", "")), group, asked, context])


@dataclass(frozen=True)
class AnswerGroup:
    """The best and the worst of the answers to one input; the first one where scores tie."""

    best: Sample
    worst: Sample | None
    """None when no answer is worse than the best."""

    others: tuple[str, ...]
    """The ids of the other answers."""


class AnswerGroups:
    """Samples by group, on disk. One group is in memory at a time."""

    def __init__(self) -> None:
        self._database = open_temporary_database()
        for statement in (_CREATE_MEMBERS, _CREATE_PLACES, "BEGIN"):
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

    def __iter__(self) -> Iterator[AnswerGroup]:
        """Yield each group, in the order of their first members."""
        # An index that exists during the inserts would slow each of them down.
        self._database.execute(_CREATE_MEMBER_INDEX)
        places = self._database.execute("SELECT DISTINCT place FROM member ORDER BY place")
        for (place,) in places:
            members = self._database.execute(
                "SELECT number, score, id FROM member WHERE place = ? ORDER BY number", (place,)
            ).fetchall()
            # A missing score ranks below all: it occurs only where unscored samples are accepted.
            ranked = [(float("-inf") if score is None else score) for _, score, _ in members]
            best, worst = ranked.index(max(ranked)), ranked.index(min(ranked))
            yield AnswerGroup(
                best=self._read_sample(members[best][0]),
                worst=None if best == worst else self._read_sample(members[worst][0]),
                others=tuple(
                    name for n, (_, _, name) in enumerate(members) if n not in (best, worst)
                ),
            )

    def _read_sample(self, number: int) -> Sample:
        found = self._database.execute("SELECT body FROM member WHERE number = ?", (number,))
        return Sample.from_json(found.fetchone()[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._database.close()
