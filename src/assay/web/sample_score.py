"""The result of a sample: metrics, the quotes of judges, the findings of checks, and steps."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from assay.scorers import is_check_passed
from assay.types import EvaluateResult, Message, Metric, Sample, StepOutput

from .charts import draw_steps
from .conversations import MAIN, SUBAGENT, ShownConversation
from .page import PageModel
from .render import read_finite_number
from .text_marks import find_quote, read_excerpt
from .transcript import iterate_texts

_MAX_METRICS = 200
_MAX_QUOTES = 40
_MAX_PLACES = 10
_MAX_OPINIONS = 30
_MAX_STEPS = 200
_MAX_REASON_CHARS = 5000
_MAX_SEARCHED_CHARS = 100_000
_TURN = re.compile(r"\bturns? (\d{1,9})(?: to \d{1,9})?(?: of subagent ('[^']*'|\"[^\"]*\"))?")


class Place(PageModel):
    """A message of a conversation."""

    conversation: str
    number: int
    """Counted from 1."""


class Quote(PageModel):
    """Words of the transcript that a judge or a check quotes."""

    name: str
    """The name of its mark in the transcript."""

    text: str
    places: tuple[Place, ...]
    """Empty if the transcript does not contain it."""


class JudgeVote(PageModel):
    """The vote of one judge on a criterion, or the verdict on a generated rubric."""

    title: str
    score: float | None
    met: bool | None = None
    reason: str


class MetricView(PageModel):
    """One metric of a result."""

    name: str
    score: float | None
    valid: bool
    weight: float | None
    reason: str
    passed: bool | None
    """Of a check; None for other metrics."""

    quotes: tuple[Quote, ...] = ()
    places: tuple[Place, ...] = ()
    """Messages that the reason names without a quote."""

    agreement: float | None = None
    split: bool = False
    """Whether some votes pass and others do not."""

    opinions: tuple[JudgeVote, ...] = ()


class StepView(PageModel):
    """One exchange with the environment."""

    index: str
    reward: float | None
    terminated: bool
    reason: str


class StepsView(PageModel):
    """The steps of an episode."""

    total: int
    reward: float | None
    """The sum; None if a reward is unknown."""

    rewards: tuple[float | None, ...]
    """Of all steps, in order."""

    steps: tuple[StepView, ...]
    """The first ones."""

    @property
    def chart(self) -> Markup:
        return draw_steps(self.rewards)


class ScoreView(PageModel):
    """The result of a sample."""

    score: float | None
    valid: bool
    reason: str
    error: str
    metrics: tuple[MetricView, ...]
    more_metrics: int
    """Metrics that are not shown; the raw sample has them."""

    judges: tuple[str, ...] = ()
    votes: int | None = None
    rubric: str | None = None
    steps: StepsView | None = None


def read_score(sample: Sample, conversations: Sequence[ShownConversation]) -> ScoreView | None:
    """Read the result of a sample; None for one without result and steps."""
    result, steps = sample.score, _read_steps(sample)
    if result is None and steps is None:
        return None
    if result is None:
        result = EvaluateResult()
    locator = _Locator(conversations)
    extra = result.model_extra or {}
    about = extra.get("judgement")
    judgement: Mapping[str, Any] = about if isinstance(about, dict) else {}
    judges, votes = judgement.get("judges"), judgement.get("votes")
    return ScoreView(
        score=result.score,
        valid=result.is_score_valid,
        reason=_cut(result.reason),
        error=_cut(result.error),
        metrics=tuple(
            locator.read_metric(name, metric)
            for name, metric in list(result.metrics.items())[:_MAX_METRICS]
        ),
        more_metrics=max(len(result.metrics) - _MAX_METRICS, 0),
        judges=tuple(str(each)[:100] for each in judges[:20]) if isinstance(judges, list) else (),
        # Anything may be in the record of a result: values of other types are not shown.
        votes=votes if type(votes) is int else None,
        rubric=str(judgement["rubric"])[:100] if "rubric" in judgement else None,
        steps=steps,
    )


def collect_quotes(score: ScoreView | None, conversation: str) -> dict[int, list[tuple[str, str]]]:
    """Return name and text of the quotes in each message of a conversation, by its number."""
    found: dict[int, list[tuple[str, str]]] = {}
    for metric in () if score is None else score.metrics:
        for quote in metric.quotes:
            for place in quote.places:
                if place.conversation == conversation:
                    found.setdefault(place.number, []).append((quote.name, quote.text))
    return found


class _Locator:
    """Finds the messages that metrics refer to, by the numbers of judges or of checks."""

    def __init__(self, conversations: Sequence[ShownConversation]) -> None:
        self._conversations = conversations
        self._check_turns: dict[str, list[int]] = {}
        self._quotes = 0

    def read_metric(self, name: str, metric: Metric) -> MetricView:
        extra = metric.model_extra or {}
        evidence = extra.get("evidence")
        quotes: tuple[Quote, ...]
        places: tuple[Place, ...] = ()
        # Judges list their quotes. Checks name turns and quote words in their reason.
        if isinstance(evidence, list):
            quotes = tuple(self._read_evidence(evidence))
        else:
            quotes, places = self._read_finding(metric.reason or "")
        is_check = not isinstance(evidence, list) and bool(quotes or places or "passed" in extra)
        return MetricView(
            name=name,
            score=metric.score,
            valid=metric.is_score_valid,
            weight=metric.weight,
            reason=_cut(metric.reason),
            passed=is_check_passed(metric) if is_check else None,
            quotes=quotes,
            places=places,
            agreement=read_finite_number(extra.get("agreement")),
            split=extra.get("split") is True,
            opinions=tuple(_read_opinions(extra)),
        )

    def _read_evidence(self, evidence: list[Any]) -> Iterator[Quote]:
        for each in evidence[:_MAX_QUOTES]:
            text = each.get("quote") if isinstance(each, dict) else None
            if not isinstance(text, str):
                continue
            turns = each.get("turns")
            numbers = (
                [turn for turn in turns if type(turn) is int] if isinstance(turns, list) else []
            )
            places = (self._find_judged(number) for number in numbers[:_MAX_PLACES])
            yield self._build_quote(text, tuple(place for place in places if place is not None))

    def _read_finding(self, reason: str) -> tuple[tuple[Quote, ...], tuple[Place, ...]]:
        quotes: list[Quote] = []
        places: list[Place] = []
        for match in _TURN.finditer(reason[:_MAX_REASON_CHARS]):
            excerpt = read_excerpt(reason, match.end())
            place = self._find_checked(int(match[1]), match[2], excerpt)
            if place is None or len(quotes) + len(places) >= _MAX_PLACES:
                continue
            if excerpt is not None:
                quotes.append(self._build_quote(excerpt, (place,)))
            elif place not in places:
                places.append(place)
        return tuple(quotes), tuple(places)

    def _build_quote(self, text: str, places: tuple[Place, ...]) -> Quote:
        self._quotes += 1
        return Quote(name=f"quote-{self._quotes}", text=text[:_MAX_REASON_CHARS], places=places)

    def _find_judged(self, number: int) -> Place | None:
        """Find a message by the number that judges give it: subagents follow the main agent."""
        for each in self._conversations:
            within = number - each.first_number + 1
            is_numbered = each.node.name == MAIN or each.node.reason == SUBAGENT
            if is_numbered and 1 <= within <= len(each.messages):
                return Place(conversation=each.node.name, number=within)
        return None

    def _find_checked(self, turn: int, agent: str | None, excerpt: str | None) -> Place | None:
        """Find a message by its turn as checks count them, without system messages.

        A turn has several messages: that with the quoted words, else the first one.
        """
        conversation = self._find_agent(agent)
        if conversation is None:
            return None
        name, messages = conversation.node.name, conversation.messages
        if name not in self._check_turns:
            self._check_turns[name] = _list_check_turns(messages)
        starts = [*self._check_turns[name], len(messages)]
        if not 1 <= turn < len(starts):
            return None
        first, end = starts[turn - 1], starts[turn]
        for place in range(first, end) if excerpt is not None else ():
            texts = (text[:_MAX_SEARCHED_CHARS] for text in iterate_texts(messages[place]))
            if any(find_quote(excerpt or "", text) for text in texts):
                return Place(conversation=name, number=place + 1)
        return Place(conversation=name, number=first + 1)

    def _find_agent(self, agent: str | None) -> ShownConversation | None:
        for each in self._conversations:
            if agent is None and each.node.name == MAIN:
                return each
            # Compared as checks write it: quoted, and cut if it is long.
            if agent is not None and each.node.id is not None and f"{each.node.id!r:.80}" == agent:
                return each
        return None


def _list_check_turns(messages: Sequence[Message]) -> list[int]:
    """Return the position of the first message of each turn: all consecutive ones of a side."""
    starts: list[int] = []
    before = ""
    for place, message in enumerate(messages):
        if message.role in ("user", "assistant") and message.role != before:
            starts.append(place)
            before = message.role
    return starts


def _read_opinions(extra: Mapping[str, Any]) -> Iterator[JudgeVote]:
    for key, title in (("opinions", "judge"), ("verdicts", "rubric")):
        listed = extra.get(key)
        for each in listed[:_MAX_OPINIONS] if isinstance(listed, list) else ():
            if not isinstance(each, dict):
                continue
            met = each.get("met")
            yield JudgeVote(
                title=str(each.get(title) or "")[:500],
                score=read_finite_number(each.get("score")),
                met=met if isinstance(met, bool) else None,
                reason=_cut(str(each.get("reason") or "")),
            )


def _read_steps(sample: Sample) -> StepsView | None:
    # Rewards of the environment itself come before those that a scorer returned.
    own = None if sample.trajectory is None else sample.trajectory.evaluation_result
    outputs: Sequence[StepOutput] = ()
    for result in (own, sample.score):
        if result is not None and result.step_outputs:
            outputs = result.step_outputs
            break
    if not outputs:
        return None
    rewards = tuple(step.base_reward for step in outputs)
    return StepsView(
        total=len(outputs),
        reward=sample.get_total_reward(),
        rewards=rewards,
        steps=tuple(
            StepView(
                index=str(step.step_index)[:40],
                reward=step.base_reward,
                terminated=step.terminated,
                reason=_cut(step.reason),
            )
            for step in outputs[:_MAX_STEPS]
        ),
    )


def _cut(text: str | None) -> str:
    text = text or ""
    return text if len(text) <= _MAX_REASON_CHARS else f"{text[: _MAX_REASON_CHARS - 1]}…"
