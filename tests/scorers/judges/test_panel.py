"""Asking judges: retries, panels, failures as votes, and refused keys."""

import asyncio
from collections.abc import Sequence

import pytest

from assay.errors import AccessDenied, ConfigError, EndpointError
from assay.providers import ModelClient, Reply
from assay.scorers import JudgeSettings, Spending
from assay.scorers.judges.judge_prompt import JudgePrompt, build_grading_prompt
from assay.scorers.judges.panel import Panel, Vote
from assay.types import Endpoint, Message, ModelCall, ToolSpec
from judge_answers import DONE
from make import said
from scripted import Scripted


def read(text: str, asked: JudgePrompt) -> tuple[str | None, str | None]:
    return (text, None) if text.startswith("yes") else (None, "it does not say yes")


def votes_of(
    *judges: ModelClient, votes: int = 1, retries: int = 2, spending: Spending | None = None
) -> list[Vote[str]]:
    bench = Panel(judges, votes, JudgeSettings(retries=retries))
    lines = ('{"turn": 1}',)
    return asyncio.run(
        bench.ask(lambda: build_grading_prompt(DONE, lines), read, spending or Spending())
    )


def test_an_unusable_answer_is_asked_for_again_with_the_problem() -> None:
    judge, spent = Scripted(said("no"), said("yes")), Spending()

    (vote,) = votes_of(judge, spending=spent)

    assert (vote.given, vote.problem) == ("yes", None)
    assert "That cannot be used: it does not say yes." in judge.asked[1][-1].text
    assert (spent.calls, spent.asked_again) == (2, 1)


def test_asking_again_has_an_end() -> None:
    judge = Scripted(said("no"), said("no"), said("no"), said("yes"))

    (vote,) = votes_of(judge, retries=2)

    assert (vote.given, vote.problem) == (None, "it does not say yes")


def test_a_judge_out_of_reach_is_a_vote_without_an_answer() -> None:
    broken, spent = Scripted(EndpointError("down")), Spending()

    first, second = votes_of(broken, Scripted(said("yes")), spending=spent)

    assert str(first.failure) == "down"
    assert second.given == "yes"
    assert spent.failed == 1


def test_a_refused_key_ends_it() -> None:
    with pytest.raises(AccessDenied):
        votes_of(Scripted(said("yes")), Scripted(AccessDenied("no such key")))


def test_members_of_one_model_are_told_apart() -> None:
    votes = votes_of(Scripted(said("yes")), Scripted(said("yes")))

    assert [vote.judge for vote in votes] == ["mock:scripted #1", "mock:scripted #2"]


class Seeded:
    """A judge that remembers its seeds and is cut off at its token limit."""

    def __init__(self, seed: int | None) -> None:
        self.endpoint = Endpoint(provider="mock", model="seeded", seed=seed)
        self.seeds: list[int | None] = []

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        self.seeds.append(seed)
        return Reply(said("no"), ModelCall(finish_reason="length"))

    async def close(self) -> None: ...


def test_votes_of_one_judge_have_different_seeds() -> None:
    seeded, unseeded = Seeded(0), Seeded(None)

    votes_of(seeded, unseeded, votes=3, retries=0)

    assert seeded.seeds == [0, 1, 2]
    assert unseeded.seeds == [None, None, None]


def test_an_answer_that_was_cut_off_says_so() -> None:
    (vote,) = votes_of(Seeded(0), retries=0)

    assert "cut off at its token limit" in str(vote.problem)


def test_every_vote_gets_codes_of_its_own() -> None:
    judge = Scripted(said("yes"), said("yes"))

    votes_of(judge, votes=2)

    assert judge.asked[0][0].text != judge.asked[1][0].text


@pytest.mark.parametrize("votes", [0, -1, True, 1.5, "3"])
def test_a_number_of_votes_that_is_none_is_refused(votes: int) -> None:
    with pytest.raises(ConfigError, match="votes="):
        Panel("mock:echo", votes, JudgeSettings())


def test_a_bench_needs_judges_that_can_be_asked() -> None:
    with pytest.raises(ConfigError, match="no judge"):
        Panel([], 1, JudgeSettings())
    with pytest.raises(ConfigError, match="provider:model"):
        Panel("gpt", 1, JudgeSettings())


@pytest.mark.parametrize("settings", [{"retries": -1}, {"longest_transcript": 10}])
def test_settings_out_of_range_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is not a whole number"):
        JudgeSettings(**settings)  # type: ignore[arg-type]  # by name
