"""Pairwise judging: every pair is compared in both orders to cancel position bias."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from assay.types import Sample

from .async_closeable import AsyncCloseable
from .evidence import QuoteIndex
from .judge_cost import Spending
from .judge_prompt import JudgePrompt, build_comparison_prompt
from .judge_reply import UnusableReply, find_reply_object
from .judged_transcript import JudgedTranscript, TranscriptTooLong, render_transcript
from .panel import JudgeRef, JudgeSettings, Panel, Vote
from .rubric import Rubric
from .rubric_file import read_rubric

Winner = Literal["a", "b", "tie"]
_WINNER_VALUES = ("first", "second", "tie")
# The sample that a judge means, for the two orders in which it sees them.
_FORWARD: dict[str, Winner] = {"first": "a", "second": "b"}
_BACKWARD: dict[str, Winner] = {"first": "b", "second": "a"}


@dataclass(frozen=True)
class Preference:
    """The verdict of the judges on two samples."""

    winner: Winner | None
    """None when the pair is unscored; `error` then has the reason."""

    inconsistent: int = 0
    """Votes that changed with the order; each counts as a tie."""

    votes: tuple[Winner | None, ...] = ()
    """Each combines two replies, one for each order; None where one is missing."""

    reasons: tuple[str, ...] = ()
    error: str | None = None


@dataclass
class PairTally:
    """Counts of preferences over many pairs."""

    winners: Counter[str] = field(default_factory=Counter)
    inconsistent: int = 0
    votes: int = 0

    def add(self, preference: Preference) -> None:
        """Count one pair."""
        self.winners[preference.winner or "not judged"] += 1
        self.inconsistent += preference.inconsistent
        self.votes += sum(vote is not None for vote in preference.votes)

    @property
    def inconsistency(self) -> float | None:
        """The share of votes that changed with the order; None without votes."""
        return self.inconsistent / self.votes if self.votes else None


@dataclass(frozen=True)
class _PairVerdict:
    place: str
    reason: str


class PairJudge(AsyncCloseable):
    """Compares two samples. A context manager that closes itself."""

    def __init__(self, rubric: Rubric, panel: Panel, settings: JudgeSettings) -> None:
        self.rubric = rubric
        self.spending = Spending()
        self._panel = panel
        self._require_key = settings.require_key
        # Two transcripts share one prompt.
        self._longest = settings.longest_transcript // 2

    async def __call__(self, a: Sample, b: Sample) -> Preference:
        """Return which is better. Raises `EndpointError` when judges were unreachable."""
        try:
            one, other = self._render(a), self._render(b)
        except TranscriptTooLong:
            return Preference(None, error="a transcript has too many messages to be shown")
        forward = await self._ask(one, other)
        backward = await self._ask(other, one)
        return _combine_orders(forward, backward)

    def _render(self, sample: Sample) -> JudgedTranscript:
        return render_transcript(
            sample,
            longest=self._longest,
            reasoning=self.rubric.reasoning,
            reference=self.rubric.reference,
            subagents=self.rubric.subagents,
        )

    async def _ask(
        self, first: JudgedTranscript, second: JudgedTranscript
    ) -> list[Vote[_PairVerdict]]:
        materials = (QuoteIndex(first), QuoteIndex(second))

        def read(text: str, asked: JudgePrompt) -> tuple[_PairVerdict | None, str | None]:
            try:
                # Against both transcripts: a reply without the key may be a quote from either.
                for material in materials:
                    found = find_reply_object(
                        text,
                        key=asked.key,
                        material=material,
                        has=("winner",),
                        require_key=self._require_key,
                    )
                place = str(found["winner"]).strip().lower()
                if place not in _WINNER_VALUES:
                    raise UnusableReply('"winner" is not "first", "second" or "tie"')
            except UnusableReply as error:
                return None, str(error)
            return _PairVerdict(place, str(found.get("reason") or "")), None

        return await self._panel.ask(
            lambda: build_comparison_prompt(self.rubric, first.lines, second.lines),
            read,
            self.spending,
        )

    async def close(self) -> None:
        """Close the connections of the judges."""
        await self._panel.close()


def prefer(
    rubric: Rubric | str | Path | Mapping[str, Any],
    endpoint: JudgeRef | Sequence[JudgeRef],
    *,
    votes: int = 1,
    settings: JudgeSettings | None = None,
) -> PairJudge:
    """Return an async function that compares two samples by a rubric.

    Each vote takes two calls, with the samples in both orders. A verdict that changes with the
    order is a tie, and counted as inconsistent.
    """
    settings = settings or JudgeSettings()
    return PairJudge(read_rubric(rubric), Panel(endpoint, votes, settings), settings)


def _combine_orders(
    forward: Sequence[Vote[_PairVerdict]], backward: Sequence[Vote[_PairVerdict]]
) -> Preference:
    votes: list[Winner | None] = []
    inconsistent = 0
    for one, other in zip(forward, backward, strict=True):
        if one.given is None or other.given is None:
            votes.append(None)
            continue
        seen = _FORWARD.get(one.given.place, "tie")
        # A verdict that follows the position is a bias of the judge, not a preference.
        same = seen == _BACKWARD.get(other.given.place, "tie")
        inconsistent += not same
        votes.append(seen if same else "tie")
    given = [vote for vote in votes if vote is not None]
    winner: Winner | None = None
    # More than half of the votes must be usable.
    if 2 * len(given) > len(votes):
        lead = given.count("a") - given.count("b")
        winner = "a" if lead > 0 else "b" if lead < 0 else "tie"
    asked = [*forward, *backward]
    if winner is None:
        for vote in asked:
            if vote.failure is not None:
                raise vote.failure
    reasons = tuple(vote.given.reason for vote in asked if vote.given is not None)
    problems = dict.fromkeys(vote.problem for vote in asked if vote.problem)
    error = f"no majority of usable votes: {'; '.join(problems)}" if winner is None else None
    return Preference(winner, inconsistent, tuple(votes), reasons, error)
