"""`judge`: a rubric and a model, as a scorer."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.types import EvaluateResult, Sample

from .async_closeable import AsyncCloseable
from .evidence import QuoteIndex
from .judge_cost import Spending
from .judge_prompt import JudgePrompt, build_grading_prompt
from .judge_reply import JudgeReply, parse_reply
from .judged_transcript import TranscriptTooLong, render_transcript
from .panel import JudgeRef, JudgeSettings, Panel, Vote
from .rubric import Rubric
from .rubric_file import read_rubric
from .votes import build_judge_result

JUDGEMENT = "judgement"
"""The field of a result that describes its judges, their votes and the cost."""


class Judge(AsyncCloseable):
    """Scores samples by model calls: an async scorer, and a context manager."""

    def __init__(self, rubric: Rubric, panel: Panel, settings: JudgeSettings) -> None:
        self.rubric = rubric
        self.spending = Spending()
        """The usage of all calls of this judge."""

        self.judges = panel.names
        """The names of the judges."""

        self.votes = panel.votes
        """The number of votes of each judge."""

        self._panel = panel
        self._settings = settings
        self._names = [criterion.name for criterion in rubric.criteria]
        # A run is identified by the name of its scorer: another rubric or judge is another scorer.
        judges = f"{', '.join(panel.names)} {panel.digest}, votes={panel.votes}"
        shown = f"longest_transcript={settings.longest_transcript}"
        self.__qualname__ = f"judge({rubric.name} {rubric.digest}, {judges}, {shown})"

    def __repr__(self) -> str:
        return self.__qualname__

    async def __call__(self, sample: Sample) -> EvaluateResult:
        """Judge one sample.

        Replies that cannot be parsed leave it unscored, with the reason in `error`. Raises
        `EndpointError` when it is unscored because judges were unreachable.
        """
        if not any(message.role == "assistant" for message in sample.messages):
            return EvaluateResult(error="the transcript has no assistant message to judge")
        try:
            shown = render_transcript(
                sample,
                longest=self._settings.longest_transcript,
                reasoning=self.rubric.reasoning,
                reference=self.rubric.reference,
                subagents=self.rubric.subagents,
            )
        except TranscriptTooLong:
            limit = self._settings.longest_transcript
            return EvaluateResult(
                error=f"the transcript has too many messages to be shown in {limit} characters"
            )
        material = QuoteIndex(shown)

        def read(text: str, asked: JudgePrompt) -> tuple[JudgeReply, str | None]:
            answer = parse_reply(
                text,
                self._names,
                key=asked.key,
                material=material,
                require_key=self._settings.require_key,
            )
            return answer, answer.problem

        spent = Spending()
        try:
            ballots = await self._panel.ask(
                lambda: build_grading_prompt(self.rubric, shown.lines), read, spent
            )
        finally:
            # Also when judging fails: the calls were paid for.
            self.spending.include(spent)
        result = build_judge_result(self.rubric, ballots, material)
        if result.error is not None:
            # An unreachable judge is an error of the endpoint, which a retry may fix.
            for vote in ballots:
                if vote.failure is not None:
                    raise vote.failure
        about = {**self._describe_judgement(ballots, spent), "left_out": shown.left_out}
        if shown.subagents_left_out:
            about["subagents_left_out"] = shown.subagents_left_out
        return result.model_copy(update={JUDGEMENT: about})

    def _describe_judgement(
        self, ballots: Sequence[Vote[JudgeReply]], spent: Spending
    ) -> dict[str, Any]:
        return {
            "rubric": self.rubric.name,
            "digest": self.rubric.digest,
            "judges": list(self.judges),
            "votes": len(ballots),
            "usable": sum(vote.problem is None and vote.failure is None for vote in ballots),
            "problems": [
                f"{vote.judge}: {vote.failure or vote.problem}"
                for vote in ballots
                if vote.failure or vote.problem
            ],
            "spending": spent.plain(),
        }

    async def close(self) -> None:
        """Close the connections of the judges."""
        await self._panel.close()


def judge(
    rubric: Rubric | str | Path | Mapping[str, Any],
    endpoint: JudgeRef | Sequence[JudgeRef],
    *,
    votes: int = 1,
    settings: JudgeSettings | None = None,
) -> Judge:
    """Return an async scorer that grades samples by a rubric with a model or a panel of models.

    `rubric` is a name, a YAML file, or a `Rubric`; `votes` is the number of calls to each judge.
    Raises `ConfigError` for an invalid one here, before the first call.
    """
    settings = settings or JudgeSettings()
    return Judge(read_rubric(rubric), Panel(endpoint, votes, settings), settings)
