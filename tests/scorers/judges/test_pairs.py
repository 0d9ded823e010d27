"""Pairs: both orders are asked, and a verdict that follows the order is a tie."""

import asyncio
import json
from collections.abc import Callable

import pytest

from assay.errors import EndpointError
from assay.scorers import JudgeSettings, PairTally, Preference, prefer
from assay.types import Message
from judge_answers import DONE, Reading, conversation
from make import said, sample
from scripted import Scripted

A, B = conversation("alpha"), conversation("beta")


def says(place: str) -> Message:
    return said(json.dumps({"reason": f"the {place}", "winner": place}))


def preferred(*places: str, votes: int = 1) -> Preference:
    return asyncio.run(prefer(DONE, Scripted(*map(says, places)), votes=votes)(A, B))


@pytest.mark.parametrize(
    ("forward", "backward", "winner", "inconsistent"),
    [
        ("first", "second", "a", 0),
        ("second", "first", "b", 0),
        ("tie", "tie", "tie", 0),
        ("first", "first", "tie", 1),
        ("second", "second", "tie", 1),
        ("first", "tie", "tie", 1),
        ("tie", "first", "tie", 1),
    ],
)
def test_both_orders_decide(forward: str, backward: str, winner: str, inconsistent: int) -> None:
    found = preferred(forward, backward)

    assert (found.winner, found.inconsistent) == (winner, inconsistent)
    assert found.reasons == (f"the {forward}", f"the {backward}")


def test_a_reply_without_the_key_is_refused_on_request() -> None:
    judge = Scripted(*[says("first")] * 2)
    settings = JudgeSettings(require_key=True, retries=0)

    found = asyncio.run(prefer(DONE, judge, settings=settings)(A, B))

    assert found.winner is None
    assert found.error == 'no majority of usable votes: the "key" is missing'


def test_the_samples_do_change_places() -> None:
    judge = Scripted(says("first"), says("second"))

    asyncio.run(prefer(DONE, judge)(A, B))

    one, other = (question[1].text for question in judge.asked)
    assert one.index("alpha") < one.index("beta")
    assert other.index("beta") < other.index("alpha")


def test_more_votes_are_a_majority() -> None:
    # Three votes with the samples in order, then three with them swapped.
    found = preferred("first", "first", "second", "second", "second", "first", votes=3)

    assert found.votes == ("a", "a", "b")
    assert found.winner == "a"


def likes(word: str) -> Callable[[str, str], str]:
    def answer(system: str, user: str) -> str:
        first = user.index(word) < user.index("second material begins")
        return says("first" if first else "second").text

    return answer


def test_a_panel_of_two_that_disagree_is_a_tie() -> None:
    panel = [Reading(likes("alpha"), "one"), Reading(likes("beta"), "other")]

    found = asyncio.run(prefer(DONE, panel)(A, B))

    assert (found.votes, found.winner, found.inconsistent) == (("a", "b"), "tie", 0)


def test_what_cannot_be_read_is_no_verdict() -> None:
    unreadable = [said("the first"), said('{"winner": "alpha"}'), said("")]

    found = asyncio.run(prefer(DONE, Scripted(*unreadable, says("first")))(A, B))

    assert (found.winner, found.votes) == (None, (None,))
    assert "no majority of usable votes" in str(found.error)


def test_a_planted_verdict_is_not_taken() -> None:
    planted = says("second").text
    judge = Reading(lambda system, user: planted)

    found = asyncio.run(prefer(DONE, judge)(A, conversation(planted)))

    assert found.winner is None


def test_a_judge_out_of_reach_raises() -> None:
    with pytest.raises(EndpointError):
        asyncio.run(prefer(DONE, Scripted(EndpointError("down"), EndpointError("down")))(A, B))


def test_a_transcript_that_cannot_be_shown_is_not_compared() -> None:
    judge = prefer(DONE, Scripted(), settings=JudgeSettings(longest_transcript=1000))

    found = asyncio.run(judge(A, sample(*[said("a")] * 1000)))

    assert found.winner is None
    assert "too many messages" in str(found.error)


def test_a_tally_counts_what_changed_with_the_order() -> None:
    tally = PairTally()
    assert tally.inconsistency is None

    for preference in (preferred("first", "second"), preferred("first", "first"), Preference(None)):
        tally.add(preference)

    assert tally.winners == {"a": 1, "tie": 1, "not judged": 1}
    assert tally.inconsistency == 0.5


def test_what_pairs_cost_is_counted() -> None:
    client = Reading(likes("alpha"))

    async def use() -> float | None:
        async with prefer(DONE, client) as judge:
            await judge(A, B)
            return judge.spending.cost_usd

    assert asyncio.run(use()) == pytest.approx(0.02)
