"""One sample: its transcript as a chat, its result with the quoted words, and everything recorded.

Large samples arrive in pages of turns, and long texts in parts. The rest is always one link away.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from assay.runner import parse_summary
from assay.store import Run, Store, TableQuery
from assay.types import DataBlock, Failure, Message, Sample, build_label

from .attachments import find_image_problem, read_file
from .conversations import MAIN, ConversationNode, ShownConversation, list_conversations
from .label_page import LabelView, find_author, read_label
from .page import (
    PageModel,
    build_page_routes,
    copy_fields,
    encode_segment,
    find_context,
    find_run,
    read_number,
    read_parameter,
    read_segment,
)
from .render import format_json, shorten_line
from .run_page import find_marks, grade_score, is_low_good
from .sample_score import ScoreView, collect_quotes, read_score
from .transcript import ShownText, TranscriptOptions, TranscriptView, TurnsPage, read_part

_MAX_TABS = 100
_MAX_FIELD_CHARS = 4000
_TEXT_CHARS_PER_PAGE = 100_000
_MAX_LISTED_MATCHES = 1000
# Parameters that links to other parts of the same sample keep.
_KEPT = ("attempt", "at", "from", "find", "text", "filter", "sort", "order")
# Those that links to other samples keep too, and those of the table.
_KEPT_BY_SAMPLES = ("text", "filter", "sort", "order")
_KEPT_BY_TABLE = ("filter", "sort", "order")
# Where the scale of the scores is not known.
_USUAL_MARKS = (1.0, 0.5)


class RepeatTab(PageModel):
    """One rollout of the same sample."""

    key: str
    repeat: int
    score: float | None
    status: str
    failed: bool


class AttemptTab(PageModel):
    """One failed attempt at this sample."""

    number: int
    boundary: str
    kind: str
    recorded_at: float


class FailureView(PageModel):
    """Why the sample failed."""

    boundary: str
    kind: str
    message: str
    retryable: bool
    traceback: str


class Figures(PageModel):
    """Tokens, cost and time of the rollout. Unknown values are None."""

    model_calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: float | None
    seconds: float | None
    steps: int | None
    ended_by: str | None
    calls_with_tokens: int
    """Model calls whose token ids are recorded."""


class SearchMatches(PageModel):
    """The messages that contain a searched text."""

    text: str
    count: int
    numbers: tuple[int, ...]
    """Of the first matching messages."""

    previous: int | None
    """The last match before this page."""

    next: int | None
    """The first match after this page."""


class SampleView(PageModel):
    """The page of one sample."""

    run_id: str
    run_name: str
    key: str
    sample_id: str
    label: str
    """The first line of the question, or the title of a session."""

    index: int | None
    repeat: int
    status: str
    attempt: int | None
    """The failed attempt that is shown; None for the result."""

    previous: str | None
    """The key of the sample before this one in the order of the table."""

    next: str | None
    repeats: tuple[RepeatTab, ...]
    more_repeats: int
    attempts: tuple[AttemptTab, ...]
    more_attempts: int
    answer: ShownText | None
    expected: ShownText | None
    score: ScoreView | None
    failure: FailureView | None
    figures: Figures
    conversation: ConversationNode
    conversations: tuple[ConversationNode, ...]
    more_conversations: int
    page: TurnsPage
    matches: SearchMatches | None
    row: ShownText | None
    """The dataset row."""

    metadata: ShownText | None
    human: LabelView
    low_is_good: bool
    pass_mark: float
    """The best score: results that reach it are shown as passed."""

    fail_mark: float
    """The score up to which a result is shown as failed."""

    parameters: dict[str, str]
    """The parameters of this page that its links keep."""

    @property
    def base(self) -> str:
        """The address of the sample without parameters."""
        return build_sample_address(self.run_id, self.key)

    @property
    def is_markdown(self) -> bool:
        return self.parameters.get("text") == "markdown"

    def link(self, **changes: Any) -> str:
        """Return the address of this page with other parameters; None removes one."""
        merged = {**self.parameters, **changes}
        return _add_query(self.base, {k: v for k, v in merged.items() if v not in (None, "")})

    def link_sample(self, key: str) -> str:
        """Return the address of another sample, in the same table and text mode."""
        kept = {k: v for k, v in self.parameters.items() if k in _KEPT_BY_SAMPLES}
        return _add_query(build_sample_address(self.run_id, key), kept)

    @property
    def table_link(self) -> str:
        """The address of the table that the sample was opened from."""
        kept = {k: v for k, v in self.parameters.items() if k in _KEPT_BY_TABLE}
        return (
            f"{_add_query(f'/run/{encode_segment(self.run_id)}', kept)}{'#samples' if kept else ''}"
        )

    def grade(self, score: float | None) -> str:
        """Return the class of a score of the run: pass, fail, none if unscored, else plain."""
        marks = (self.pass_mark, self.fail_mark)
        return grade_score(score, marks, low_is_good=self.low_is_good)

    def grade_metric(self, score: float | None) -> str:
        """Return the class of a metric, whose scale is taken to be from 0 to 1."""
        return grade_score(score, _USUAL_MARKS)

    def link_part(self, name: str, **parameters: Any) -> str:
        """Return the address of a text, a file or the raw JSON of the shown record."""
        kept = {k: v for k, v in self.parameters.items() if k in ("attempt", "at")}
        return _add_query(f"{self.base}/{name}", {**kept, **parameters})

    def link_turn(self, number: int, conversation: str | None = None) -> str:
        """Return the address of a message: on this page if it has it."""
        name = conversation or self.conversation.name
        numbers = {turn.number for turn in self.page.turns}
        numbers |= {
            each.number for turn in self.page.turns for call in turn.calls for each in call.results
        }
        if name == self.conversation.name and number in numbers:
            return f"#turn-{number}"
        at = None if name == MAIN else name
        return f"{self.link(at=at, turn=number, **{'from': None})}#turn-{number}"

    def find_title(self, conversation: str) -> str:
        """Return the title of a conversation."""
        found = (each.title for each in self.conversations if each.name == conversation)
        return shorten_line(next(found, conversation), 40)

    def find_subagent(self, agent_id: str) -> ConversationNode | None:
        """Return the conversation of a subagent."""
        return next((each for each in self.conversations if each.id == agent_id), None)


def build_sample_address(run_id: str, key: str) -> str:
    """Return the path of the page of a sample."""
    return f"/run/{encode_segment(run_id)}/sample/{encode_segment(key)}"


def _add_query(path: str, parameters: Mapping[str, Any]) -> str:
    return f"{path}?{urlencode(parameters)}" if parameters else path


def read_sample(store: Store, request: Request) -> SampleView:
    """Read a sample and the turns of one page."""
    run, sample, key, repeat = _find_sample(store, request)
    attempt = read_number(request, "attempt")
    conversations, more = list_conversations(sample)
    conversation = _choose_conversation(conversations, request)
    transcript = TranscriptView(conversation.messages, conversation.calls)
    score = read_score(sample, conversations)
    find = read_parameter(request, "find").strip()
    matches = transcript.find_matches(find)
    page = transcript.build_page(
        _choose_first(transcript, matches, request),
        TranscriptOptions(collect_quotes(score, conversation.node.name), find),
    )
    table = TableQuery(
        filter=read_parameter(request, "filter").strip(),
        sort=read_parameter(request, "sort") or "position",
        descending=read_parameter(request, "order") == "desc",
    )
    # Only stored statistics: computing them reads all results of the run.
    stored = parse_summary(run.find_summary())
    marks = _USUAL_MARKS if stored is None else find_marks(run, stored)
    failure = sample.failure
    before, after = run.table().find_neighbours(key, table)
    rows = run.find_repeats(key)
    attempts = list(islice(run.attempts(key=key), _MAX_TABS + 1))
    return SampleView(
        run_id=run.id,
        run_name=run.spec.name,
        key=key,
        sample_id=sample.id,
        label=shorten_line(build_label(sample)),
        index=sample.index,
        repeat=repeat,
        status=str(sample.status),
        attempt=attempt,
        previous=before,
        next=after,
        repeats=tuple(
            copy_fields(
                RepeatTab,
                row,
                score=row.score if row.valid else None,
                failed=row.boundary is not None,
            )
            for row in rows[:_MAX_TABS]
        ),
        more_repeats=max(len(rows) - _MAX_TABS, 0),
        attempts=tuple(copy_fields(AttemptTab, each) for each in attempts[:_MAX_TABS]),
        # Counted only where not all are shown: a sample may have thousands.
        more_attempts=sum(1 for _ in run.attempts(key=key)) - _MAX_TABS
        if len(attempts) > _MAX_TABS
        else 0,
        answer=_show_field(sample.response, "answer"),
        expected=_show_field(_to_text(sample.ground_truth), "expected"),
        score=score,
        failure=None if failure is None else _show_failure(failure),
        figures=_read_figures(sample),
        conversation=conversation.node,
        conversations=tuple(each.node for each in conversations),
        more_conversations=more,
        page=page,
        matches=_describe_matches(find, matches, transcript, page) if find else None,
        row=_show_field(_to_text(sample.input or None), "row"),
        metadata=_show_field(_to_text(_leave_out_subagents(sample.metadata) or None), "metadata"),
        human=read_label(run, key, find_author()),
        low_is_good=is_low_good(run),
        pass_mark=marks[0],
        fail_mark=marks[1],
        parameters={
            name: value for name in _KEPT if (value := read_parameter(request, name)) != ""
        },
    )


def _show_failure(failure: Failure) -> FailureView:
    return FailureView(
        boundary=str(failure.boundary),
        kind=failure.kind,
        message=failure.message[:_MAX_FIELD_CHARS],
        retryable=failure.retryable,
        # The end of a traceback names the error.
        traceback=(failure.traceback or "")[-_MAX_FIELD_CHARS:],
    )


def _find_sample(store: Store, request: Request) -> tuple[Run, Sample, str, int]:
    run = find_run(store, read_segment(request, "run_id"))
    key = read_segment(request, "key")
    found = run.find_sample(key, attempt=read_number(request, "attempt"))
    if found is None:
        raise HTTPException(404, "the run has no such sample")
    return run, found.sample, found.key, found.repeat


def _choose_conversation(
    conversations: Sequence[ShownConversation], request: Request
) -> ShownConversation:
    wanted = read_parameter(request, "at", MAIN)
    for each in conversations:
        if each.node.name == wanted:
            return each
    raise HTTPException(404, "the sample has no such conversation")


def _choose_first(transcript: TranscriptView, matches: list[int], request: Request) -> int:
    """Return the first turn of the page: as asked for, else the page of the first match."""
    first = read_number(request, "from")
    if first is not None:
        return first
    number = read_number(request, "turn") or (matches[0] if matches else None)
    turn = None if number is None else transcript.find_turn(number)
    if turn is None:
        return 0
    # A little context before the turn that was asked for, unless it is on the first page.
    return 0 if turn < 40 else turn - 3


def _describe_matches(
    find: str, matches: list[int], transcript: TranscriptView, page: TurnsPage
) -> SearchMatches:
    # By their turns: the result of a call belongs to its turn, however late it arrived.
    places = [(transcript.find_turn(number) or 0, number) for number in matches]
    end = page.first + len(page.turns)
    before = [number for turn, number in places if turn < page.first]
    after = [number for turn, number in places if turn >= end]
    return SearchMatches(
        text=find,
        count=len(matches),
        numbers=tuple(matches[:_MAX_LISTED_MATCHES]),
        previous=before[-1] if before else None,
        next=after[0] if after else None,
    )


def _read_figures(sample: Sample) -> Figures:
    trajectory = sample.trajectory
    calls = [] if trajectory is None else trajectory.calls
    usages = [call.usage for call in calls if call.error is None]

    def add(name: str) -> Any:
        values = [None if usage is None else getattr(usage, name) for usage in usages]
        return None if not values or None in values else sum(values)

    cost = add("cost_usd")
    if cost is None and trajectory is not None:
        cost = trajectory.cost_usd
    return Figures(
        model_calls=len(calls),
        input_tokens=add("input_tokens"),
        output_tokens=add("output_tokens"),
        cost_usd=cost,
        seconds=None if trajectory is None else trajectory.duration,
        steps=None if trajectory is None else trajectory.steps,
        ended_by=None if trajectory is None else trajectory.termination_reason,
        calls_with_tokens=sum(call.completion_ids is not None for call in calls),
    )


def _leave_out_subagents(metadata: Mapping[str, Any]) -> dict[str, Any]:
    # They are conversations of their own.
    return {key: value for key, value in metadata.items() if key != "subagents"}


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else format_json(value)


def _show_field(text: str, part: str) -> ShownText | None:
    if not text:
        return None
    cut = len(text) > _MAX_FIELD_CHARS
    return ShownText(
        text=text[:_MAX_FIELD_CHARS],
        part=part,
        chars=len(text),
        next_offset=_MAX_FIELD_CHARS if cut else None,
    )


class TextView(PageModel):
    """A part of a long text."""

    run_id: str
    key: str
    label: str
    turn: int | None
    part: str
    text: str
    offset: int
    chars: int
    """Of the whole text."""

    next_offset: int | None
    parameters: dict[str, str]

    @property
    def base(self) -> str:
        return build_sample_address(self.run_id, self.key)

    def link(self, offset: int) -> str:
        """Return the address of another part of the text."""
        return _add_query(f"{self.base}/text", {**self.parameters, "offset": offset})

    @property
    def back(self) -> str:
        """The address of the turn on the page of the sample."""
        kept = {k: v for k, v in self.parameters.items() if k in ("attempt", "at", "turn")}
        anchor = "" if self.turn is None else f"#turn-{self.turn}"
        return _add_query(self.base, kept) + anchor


def read_text(store: Store, request: Request) -> TextView:
    """Read a part of a long text: of a message, or of a field of the sample."""
    run, sample, key, _ = _find_sample(store, request)
    part, turn = read_parameter(request, "part"), read_number(request, "turn")
    text: str | None
    if turn is not None:
        text = read_part(_find_message(sample, request, turn), part)
    elif part == "answer":
        text = sample.response
    else:
        fields = {
            "expected": sample.ground_truth,
            "row": sample.input,
            "metadata": _leave_out_subagents(sample.metadata),
        }
        text = _to_text(fields[part]) if part in fields else None
    if text is None:
        raise HTTPException(404, "the sample has no such text")
    offset = min(read_number(request, "offset") or 0, len(text))
    end = offset + _TEXT_CHARS_PER_PAGE
    return TextView(
        run_id=run.id,
        key=key,
        label=shorten_line(build_label(sample)),
        turn=turn,
        part=part,
        text=text[offset:end],
        offset=offset,
        chars=len(text),
        next_offset=end if end < len(text) else None,
        parameters={
            name: value
            for name in ("attempt", "at", "turn", "part")
            if (value := read_parameter(request, name))
        },
    )


def _find_message(sample: Sample, request: Request, number: int) -> Message:
    messages = _choose_conversation(list_conversations(sample)[0], request).messages
    if not 1 <= number <= len(messages):
        raise HTTPException(404, "the conversation has no such message")
    return messages[number - 1]


def _send_file(request: Request) -> Response:
    """Send an image or file that the record contains."""
    _, sample, _, _ = _find_sample(find_context(request).store, request)
    message = _find_message(sample, request, read_number(request, "turn") or 0)
    content = message.content if isinstance(message.content, tuple) else ()
    block = next(islice(content, read_number(request, "block") or 0, None), None)
    file = read_file(block) if isinstance(block, DataBlock) else None
    if file is None:
        raise HTTPException(404, "the record does not contain this file")
    # Nothing in a file may act: not even when it is opened on its own.
    headers = {"Content-Security-Policy": "default-src 'none'; sandbox"}
    if read_parameter(request, "show") and find_image_problem(file) is None:
        return Response(file.content, media_type=file.media_type, headers=headers)
    headers["Content-Disposition"] = 'attachment; filename="file.bin"'
    return Response(file.content, media_type="application/octet-stream", headers=headers)


def _send_raw(request: Request) -> Response:
    """Send the whole sample as it is recorded, as a download."""
    _, sample, _, _ = _find_sample(find_context(request).store, request)
    headers = {"Content-Disposition": 'attachment; filename="sample.json"'}
    return Response(sample.to_json_bytes(), media_type="application/json", headers=headers)


_PATH = "/run/{run_id}/sample/{key}"
ROUTES = [
    *build_page_routes(_PATH, "sample.html", read_sample),
    *build_page_routes(f"{_PATH}/text", "text.html", read_text),
    Route(f"{_PATH}/file", _send_file, methods=["GET"]),
    Route(f"{_PATH}/raw", _send_raw, methods=["GET"]),
]
