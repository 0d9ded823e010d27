"""Two to six runs against the first: what differs, the paired difference, and what flipped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from urllib.parse import urlencode

from pydantic import Field
from starlette.requests import Request

from assay.errors import ConfigError
from assay.runner import ChangedAnswers, RunComparison, find_config_difference, find_reason
from assay.stats import AdjustedComparison
from assay.store import ResultRow, Run, RunRow, RunStatus, SampleLabel, Store
from assay.types import Sample, build_label

from .page import PageModel, build_page_routes, find_run, read_choice, read_parameter
from .pair_table import Change, JoinedRuns, Show, join_runs
from .runs_page import find_agent_name
from .value_cache import ValueCache, build_run_key
from .word_diff import SidePart, diff_words, select_side

MAX_RUNS = 6
_SAMPLES_PER_PAGE = 20
_MAX_PICKED = 60
# Texts of one answer on this page; the page of the sample has the rest.
_MAX_ANSWER_CHARS = 20_000
_MAX_PROMPT_CHARS = 200_000
# Of one answer in a static report, whose size is limited.
_MAX_REPORT_CHARS = 2_000
_JOINED = ValueCache(max_results=2_000_000)


class TextPart(PageModel):
    """A stretch of text: in both texts, only in the old, or only in the new one."""

    kind: Literal["same", "old", "new"]
    text: str
    left_out: int = 0
    """Characters of equal text in place of this part; then `text` is empty."""


class ComparedRun(PageModel):
    """A run at the top of the page."""

    id: str
    title: str
    """Different for each run of the page: the agent, else the name, else the id."""

    name: str
    agent: str | None
    commit: str | None
    dataset: str
    status: RunStatus
    created_at: str
    mean: float | None
    cost_usd: float | None
    failed: int


class ComparedAnswer(PageModel):
    """The answer of one run to one sample."""

    run: str
    key: str | None
    """None if the run does not have the sample."""

    repeat: int
    """Of several repeats the one that shows the change best."""

    score: float | None
    """Mean over judged repeats; None if none was judged."""

    scores: tuple[float, ...]
    failed: str | None
    reason: str
    answer: str
    left_out: int
    """Characters at the end of the answer that are left out."""

    parts: tuple[TextPart, ...]
    """The answer with its differences from the baseline's."""

    label: SampleLabel | None = None
    """The label that a person gave to the answer."""

    @property
    def short_parts(self) -> list[TextPart]:
        """The first characters of the answer with its differences, for a static report."""
        parts, room = [], _MAX_REPORT_CHARS
        for part in self.parts:
            if room <= 0:
                break
            parts.append(part.model_copy(update={"text": part.text[:room]}))
            room -= len(part.text)
        return parts

    @property
    def is_shortened(self) -> bool:
        """Whether `short_parts` leaves a part of the answer out."""
        return sum(len(part.text) for part in self.parts) > _MAX_REPORT_CHARS or bool(self.left_out)


class ComparedSample(PageModel):
    """One sample in all runs."""

    id: str
    label: str
    expected: str
    change: Change
    answers: tuple[ComparedAnswer, ...]


class CompareView(PageModel):
    """The comparison of runs, or the runs to choose from if fewer than two are given."""

    runs: tuple[ComparedRun, ...]
    """The baseline first."""

    comparisons: tuple[dict[str, Any], ...] = ()
    """Each run against the baseline, as `assay compare A B --json` prints it, and `adjusted_p`."""

    prompts: tuple[tuple[TextPart, ...] | None, ...] = ()
    """The prompt of each run but the first with its differences; None where they are equal."""

    counts: dict[str, int] = Field(default_factory=dict)
    """The number of samples by `show`."""

    show: str = "flipped"
    samples: tuple[ComparedSample, ...] = ()
    next: str | None = None
    """The last sample of this page, if more follow."""

    choices: tuple[ComparedRun, ...] = ()
    query: str = ""
    """The runs, as parameters of an address."""

    @property
    def low_is_good(self) -> bool:
        """Whether low scores are good in these runs."""
        return any(found["direction"] == "min" for found in self.comparisons)

    @property
    def reach(self) -> float:
        """The largest end of the intervals, for pictures on one scale."""
        intervals = [found["difference"] for found in self.comparisons]
        ends = [abs(each[end] or 0.0) for each in intervals for end in ("mean", "low", "high")]
        return max(ends, default=0.0)


def read_comparison(store: Store, request: Request) -> CompareView:
    """Compare the runs of the request."""
    wanted = list(dict.fromkeys(each for each in request.query_params.getlist("run") if each))
    if len(wanted) > MAX_RUNS:
        raise ConfigError(f"at most {MAX_RUNS} runs can be compared, not {len(wanted)}")
    # A prefix, or `latest`, may name a run that is given by its id as well.
    runs = list({run.id: run for run in (find_run(store, each) for each in wanted)}.values())
    if read_parameter(request, "order") == "oldest":
        runs.sort(key=lambda run: run.spec.created_at)
    if len(runs) < 2:
        rows = store.runs(limit=_MAX_PICKED)
        return CompareView(
            runs=describe_compared_runs([run.row() for run in runs]),
            choices=describe_compared_runs(rows),
        )
    show = cast(Show | None, read_choice(request, "show", get_args(Show)))
    after = read_parameter(request, "after") or None
    return build_comparison(store, runs, show=show, after=after)


def build_comparison(
    store: Store,
    runs: Sequence[Run],
    *,
    show: Show | None = None,
    after: str | None = None,
    limit: int = _SAMPLES_PER_PAGE,
) -> CompareView:
    """Build the comparison of two or more runs, with a page of the samples to show."""
    rows = [run.row() for run in runs]
    # Computed again only after one of the runs has changed.
    key = build_run_key(store, *rows)
    results = sum(row.totals.recorded for row in rows)
    joined = _JOINED.get(key, lambda: join_runs(runs), results=results)
    counts = {each: joined.table.count(each) for each in get_args(Show)}
    if show is None:
        show = "flipped" if counts["flipped"] else "all"
    # One more than is shown, to detect whether there are more.
    listed = joined.table.list_samples(show, after=after, limit=limit + 1)
    more, listed = len(listed) > limit, listed[:limit]
    samples = [_read_sample(runs, sample_id, joined) for sample_id in listed]
    samples = _add_labels(runs, samples)
    return CompareView(
        runs=describe_compared_runs(rows),
        comparisons=tuple(
            _describe_compared_runs(runs, rows, index, found, samples)
            for index, found in enumerate(joined.comparisons, start=1)
        ),
        prompts=tuple(_diff_prompt(runs[0], run) for run in runs[1:]),
        counts=counts,
        show=show,
        samples=tuple(samples),
        next=listed[-1] if more else None,
        query=urlencode([("run", run.id) for run in runs]),
    )


def describe_compared_runs(rows: Sequence[RunRow]) -> tuple[ComparedRun, ...]:
    """Describe runs for the top of a page, each with a title that no other one has."""
    agents = [find_agent_name(row.spec.config) for row in rows]
    titles = [row.id for row in rows]
    # The first kind of name that differs between all of the runs.
    for names in (agents, [row.spec.name for row in rows]):
        if None not in names and len(set(names)) == len(names):
            titles = [str(name) for name in names]
            break
    return tuple(
        ComparedRun(
            id=row.id,
            title=title,
            name=row.spec.name,
            agent=agent,
            commit=find_commit(row.spec.config),
            dataset=row.spec.dataset,
            status=row.status,
            created_at=row.spec.created_at,
            mean=row.totals.mean,
            cost_usd=row.totals.cost_usd,
            failed=row.totals.failed,
        )
        for row, agent, title in zip(rows, agents, titles, strict=True)
    )


def find_commit(config: Mapping[str, Any]) -> str | None:
    """Return the commit that a run was started from, if it is recorded."""
    commit = config.get("commit")
    return commit if isinstance(commit, str) else None


def _describe_compared_runs(
    runs: Sequence[Run],
    rows: Sequence[RunRow],
    index: int,
    found: AdjustedComparison,
    samples: Sequence[ComparedSample],
) -> dict[str, Any]:
    plain = RunComparison(
        a=rows[0],
        b=rows[index],
        differing=find_config_difference(runs[0].spec, runs[index].spec),
        comparison=found.comparison,
        answers={
            each.id: _pair_answers(each, index, low_is_good=found.comparison.direction == "min")
            for each in samples
        },
    ).plain()
    return {**plain, "adjusted_p": found.adjusted_p, "conclusion": str(found.conclusion)}


def _pair_answers(sample: ComparedSample, index: int, *, low_is_good: bool) -> ChangedAnswers:
    old, new = sample.answers[0], sample.answers[index]
    fallen = (new.score or 0.0) < (old.score or 0.0)
    worse = fallen != low_is_good and new.score != old.score
    return ChangedAnswers(
        old=old.answer,
        new=new.answer,
        expected=sample.expected,
        # The reason of the worse answer explains the change.
        reason=(new if worse else old).reason,
        old_repeat=old.repeat,
        new_repeat=new.repeat,
        old_scores=old.scores,
        new_scores=new.scores,
        old_label=old.label,
        new_label=new.label,
    )


def _diff_prompt(a: Run, b: Run) -> tuple[TextPart, ...] | None:
    texts = [
        prompt.get("text") if isinstance(prompt := run.spec.config.get("prompt"), dict) else None
        for run in (a, b)
    ]
    old, new = (text[:_MAX_PROMPT_CHARS] if isinstance(text, str) else "" for text in texts)
    if old == new:
        return None
    changes = diff_words(old, new)
    return tuple(TextPart(kind=change.kind, text=change.text) for change in changes)


@dataclass(frozen=True)
class _RecordedSample:
    row: ResultRow
    sample: Sample
    scores: tuple[float, ...]
    """Of all judged repeats."""


def _read_sample(runs: Sequence[Run], sample_id: str, joined: JoinedRuns) -> ComparedSample:
    means = joined.table.find_scores(sample_id)
    change = joined.table.find_change(sample_id)
    # Of several repeats those that show the change best: of a fall the highest before it.
    has_fallen = (change != "better") != joined.table.low_is_good
    chosen = [
        _choose_recorded_repeat(
            run,
            sample_id,
            joined.table.find_index(index, sample_id),
            highest=has_fallen == (index == 0),
        )
        if joined.table.has_sample(index, sample_id)
        else None
        for index, run in enumerate(runs)
    ]
    recorded = [each for each in chosen if each is not None]
    truth = next((each.sample.ground_truth for each in recorded), None)
    texts = ["" if each is None else each.sample.response for each in chosen]
    cut = [text[:_MAX_ANSWER_CHARS] for text in texts]
    answers = [
        _build_compared_answer(run, chosen[index], means[index], text=cut[index], of=texts[index])
        for index, run in enumerate(runs)
    ]
    parts = [diff_sides(cut[0], text, only_new=len(runs) > 2) for text in cut[1:]]
    answers[0] = answers[0].model_copy(update={"parts": parts[0][0]})
    for index, (_, new) in enumerate(parts, start=1):
        answers[index] = answers[index].model_copy(update={"parts": new})
    return ComparedSample(
        id=sample_id,
        label=next((build_label(each.sample) for each in recorded), ""),
        expected="" if truth is None else str(truth)[:_MAX_ANSWER_CHARS],
        change=change,
        answers=tuple(answers),
    )


def _add_labels(runs: Sequence[Run], samples: Sequence[ComparedSample]) -> list[ComparedSample]:
    labels: dict[tuple[str, str], SampleLabel] = {}
    for index, run in enumerate(runs):
        # One query for each run, not one for each answer.
        keys = [key for each in samples if (key := each.answers[index].key) is not None]
        labels |= {(run.id, key): found for key, found in run.find_labels(keys).items()}
    if not labels:
        return list(samples)

    def add_label(answer: ComparedAnswer) -> ComparedAnswer:
        return answer.model_copy(update={"label": labels.get((answer.run, answer.key or ""))})

    return [
        each.model_copy(update={"answers": tuple(map(add_label, each.answers))}) for each in samples
    ]


def _choose_recorded_repeat(
    run: Run, sample_id: str, index: int | None, *, highest: bool
) -> _RecordedSample | None:
    rows = list(run.results(sample_id=sample_id, index=index))
    judged = [row for row in rows if row.valid and row.score is not None]
    scores = tuple(row.score for row in judged if row.score is not None)
    choose = max if highest else min
    row = choose(judged, key=lambda each: each.score or 0.0) if judged else rows[-1]
    found = run.find_result(row.key)
    return None if found is None else _RecordedSample(row, found[1], scores)


def _build_compared_answer(
    run: Run, found: _RecordedSample | None, mean: float | None, *, text: str, of: str
) -> ComparedAnswer:
    return ComparedAnswer(
        run=run.id,
        key=None if found is None else found.row.key,
        repeat=0 if found is None else found.row.repeat,
        score=mean,
        scores=() if found is None else found.scores,
        failed=None if found is None else found.row.boundary,
        reason="" if found is None else find_reason(found.sample),
        answer=text,
        left_out=len(of) - len(text),
        parts=(),
    )


def diff_sides(
    old: str, new: str, *, only_new: bool = False
) -> tuple[tuple[TextPart, ...], tuple[TextPart, ...]]:
    """Return both texts with their differences; with `only_new` the old one without."""
    changes = diff_words(old, new)
    before = (
        (TextPart(kind="same", text=old),) if only_new else _to_parts(select_side(changes, "old"))
    )
    return before, _to_parts(select_side(changes, "new"))


def _to_parts(parts: Sequence[SidePart]) -> tuple[TextPart, ...]:
    return tuple(TextPart(**part._asdict()) for part in parts)


ROUTES = build_page_routes("/compare", "compare.html", read_comparison, section="compare")
