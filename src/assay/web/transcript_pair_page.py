"""One sample in two runs: both transcripts, aligned at the first turn that differs."""

from collections.abc import Sequence

from starlette.exceptions import HTTPException
from starlette.requests import Request

from assay.errors import ConfigError
from assay.runner import find_reason
from assay.store import ResultRow, Run, Store
from assay.types import Message, Sample, build_label

from .compare_page import ComparedRun, TextPart, describe_compared_runs, diff_sides
from .page import PageModel, build_page_routes, find_run, read_number, read_parameter

_TURNS_PER_PAGE = 40
_MAX_TURN_CHARS = 50_000


class ComparedTurn(PageModel):
    """One message of a transcript, tool calls and reasoning included."""

    number: int
    role: str
    parts: tuple[TextPart, ...]
    left_out: int
    """Characters at the end of the turn that are left out."""


class TurnPair(PageModel):
    """The turns at the same place of both transcripts; None where one of them has ended."""

    same: bool
    old: ComparedTurn | None
    new: ComparedTurn | None


class TranscriptSide(PageModel):
    """One of the two samples."""

    run: ComparedRun
    key: str
    repeat: int
    repeats: tuple[int, ...]
    score: float | None
    failed: str | None
    reason: str
    turns: int


class TranscriptPairView(PageModel):
    """Two transcripts of one sample."""

    id: str
    label: str
    expected: str
    old: TranscriptSide
    new: TranscriptSide
    equal_turns: int
    """Turns at the start that are equal in both transcripts."""

    start: int
    """The first turn of `turns`."""

    turns: tuple[TurnPair, ...]
    next: int | None
    """The first turn of the next page."""


def read_transcript_pair(store: Store, request: Request) -> TranscriptPairView:
    """Read one sample of two runs."""
    wanted = request.query_params.getlist("run")
    if len(wanted) != 2:
        raise ConfigError(f"two runs are needed to compare transcripts, not {len(wanted)}")
    sample_id = read_parameter(request, "id")
    runs = [find_run(store, each) for each in wanted]
    found = [
        _read_repeat(run, sample_id, read_number(request, name))
        for run, name in zip(runs, ("old", "new"), strict=True)
    ]
    heads = describe_compared_runs([run.row() for run in runs])
    sides = [
        _describe_side(head, *each[:2], repeats=each[2])
        for head, each in zip(heads, found, strict=True)
    ]
    old, new = (sample.messages for _, sample, _ in found)
    equal = _count_equal(old, new)
    start = read_number(request, "turn")
    # Equal turns are left out unless they are asked for.
    start = equal if start is None else start
    longest = max(len(old), len(new))
    end = min(start + _TURNS_PER_PAGE, longest)
    sample = found[0][1]
    truth = sample.ground_truth
    return TranscriptPairView(
        id=sample_id,
        label=build_label(sample),
        expected="" if truth is None else str(truth)[:_MAX_TURN_CHARS],
        old=sides[0],
        new=sides[1],
        equal_turns=equal,
        start=start,
        turns=tuple(_pair_turns(old, new, place) for place in range(start, end)),
        next=end if end < longest else None,
    )


def _read_repeat(
    run: Run, sample_id: str, repeat: int | None
) -> tuple[ResultRow, Sample, tuple[int, ...]]:
    rows, samples = run.results(sample_id=sample_id), run.samples(sample_id=sample_id)
    found = list(zip(rows, samples, strict=False))
    chosen = [each for each in found if repeat is None or each[0].repeat == repeat]
    if not chosen:
        raise HTTPException(404, f"run {run.id!r} has no sample {sample_id[:100]!r}")
    return (*chosen[0], tuple(row.repeat for row, _ in found))


def _describe_side(
    run: ComparedRun, row: ResultRow, sample: Sample, *, repeats: tuple[int, ...]
) -> TranscriptSide:
    return TranscriptSide(
        run=run,
        key=row.key,
        repeat=row.repeat,
        repeats=repeats,
        score=row.score if row.valid else None,
        failed=row.boundary,
        reason=find_reason(sample),
        turns=len(sample.messages),
    )


def _count_equal(old: Sequence[Message], new: Sequence[Message]) -> int:
    count = 0
    for before, after in zip(old, new, strict=False):
        if before.role != after.role or format_turn(before) != format_turn(after):
            break
        count += 1
    return count


def format_turn(message: Message) -> str:
    """Return a message as text: reasoning, content, then its tool calls."""
    reasoning = f"reasoning: {message.reasoning_content}" if message.reasoning_content else ""
    calls = (f"{call.name}({call.arguments_text})" for call in message.tool_calls)
    return "\n".join(filter(None, (reasoning, message.text, *calls)))


def _pair_turns(old: Sequence[Message], new: Sequence[Message], place: int) -> TurnPair:
    before, after = (turns[place] if place < len(turns) else None for turns in (old, new))
    texts = ["" if each is None else format_turn(each) for each in (before, after)]
    cut = [text[:_MAX_TURN_CHARS] for text in texts]
    both = before is not None and after is not None and before.role == after.role
    # Words of different roles have nothing to align.
    parts = diff_sides(*cut) if both else [(TextPart(kind="same", text=text),) for text in cut]
    sides = [
        None
        if message is None
        else ComparedTurn(
            number=place + 1,
            role=message.role,
            parts=tuple(parts[side]),
            left_out=len(texts[side]) - len(cut[side]),
        )
        for side, message in enumerate((before, after))
    ]
    return TurnPair(same=both and texts[0] == texts[1], old=sides[0], new=sides[1])


ROUTES = build_page_routes(
    "/compare/sample",
    "/api/compare/sample",
    template="transcript_pair.html",
    section="compare",
    read=read_transcript_pair,
)
