"""A conversation as turns: tool calls with their results, in pages that are bounded in size."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from markupsafe import Markup

from assay.formats import read_tool_outcome
from assay.types import DataBlock, Message, ModelCall, ToolCall

from .attachments import Attachment, decode_text, read_attachment, read_file
from .markdown import render_markdown
from .page import PageModel
from .render import format_json, shorten_line
from .text_marks import Mark, build_marks, find_words, render_marks

TURNS_PER_PAGE = 50
_MAX_TEXT_CHARS = 20_000
# Of all texts of a page; each text still gets a beginning when it is used up.
_MAX_PAGE_CHARS = 400_000
_MIN_TEXT_CHARS = 400
_MAX_CALLS = 50
_MAX_ARGUMENTS = 30
_MAX_ATTACHMENTS = 50
_MAX_SUMMARY_CHARS = 120
_TOOL_ROLES = ("tool", "function")


class ShownText(PageModel):
    """The beginning of a text, which is all of it unless `next_offset` is set."""

    text: str
    part: str
    """The name of the text in its turn, for the page of its rest."""

    chars: int
    """Of the whole text."""

    next_offset: int | None = None
    """Where the rest begins."""

    marks: tuple[Mark, ...] = ()

    @property
    def marked(self) -> Markup:
        """The shown text, escaped, with its marks."""
        return render_marks(self.text, self.marks)

    @property
    def markdown(self) -> Markup:
        """The shown text as inert Markdown."""
        return render_markdown(self.text)

    @property
    def words(self) -> int:
        return len(self.text.split())


class ToolResult(PageModel):
    """The answer to a tool call."""

    number: int
    """Of its message, counted from 1."""

    text: ShownText | None
    attachments: tuple[Attachment, ...] = ()
    failed: bool | None
    """None if it is not recorded."""

    exit_code: int | None
    subagent: str | None = None
    """The id of the subagent that the call started."""


class Argument(PageModel):
    """One argument of a tool call."""

    name: str
    value: ShownText


class ShownCall(PageModel):
    """A tool call with its results."""

    id: str | None
    name: str
    arguments: tuple[Argument, ...]
    more_arguments: int = 0
    """Arguments that are not shown; the raw sample has them."""

    malformed: bool
    """Whether the arguments are not a JSON object."""

    results: tuple[ToolResult, ...]

    @property
    def summary(self) -> str:
        """The arguments on one short line."""
        pairs = (
            f"{each.name}={shorten_line(each.value.text, 60)}" if each.name else each.value.text
            for each in self.arguments
        )
        return shorten_line(", ".join(pairs), _MAX_SUMMARY_CHARS)

    @property
    def has_marks(self) -> bool:
        texts = [each.value for each in self.arguments]
        texts += [each.text for each in self.results if each.text is not None]
        return any(text.marks for text in texts)


class Turn(PageModel):
    """One message, with the results of its tool calls."""

    number: int
    """Of the message, counted from 1."""

    role: str
    name: str | None
    text: ShownText | None
    reasoning: ShownText | None
    calls: tuple[ShownCall, ...] = ()
    more_calls: int = 0
    attachments: tuple[Attachment, ...] = ()
    more_attachments: int = 0
    result: ToolResult | None = None
    """Of a tool's message whose call is not recorded."""

    model: str | None = None
    seconds: float | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    finish_reason: str | None = None
    timestamp: str | None = None


class TurnsPage(PageModel):
    """The turns of one page."""

    turns: tuple[Turn, ...]
    first: int
    """The position of the first turn of the page among all turns, counted from 0."""

    total: int
    """Turns of the conversation. Results of tool calls belong to the turn that made the call."""

    messages: int
    previous: int | None
    next: int | None


@dataclass(frozen=True)
class TranscriptOptions:
    """What to mark in the texts of a page."""

    quotes: Mapping[int, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """Name and text of the quotes in each message, by its number."""

    find: str = ""


class TranscriptView:
    """The messages of one conversation, with each tool result paired to its call."""

    def __init__(self, messages: Sequence[Message], calls: Iterable[ModelCall] = ()) -> None:
        self.messages = messages
        self.model_calls = {
            call.message_index: call for call in calls if call.message_index is not None
        }
        """The model calls by the positions of the messages that they made."""

        self.results = _pair_results(messages)
        """The positions of the messages that answer a call, by those of its message and itself."""

        paired = {each for places in self.results.values() for each in places}
        self.places = [place for place in range(len(messages)) if place not in paired]
        """The positions of the messages that are turns of their own."""

        self._owners = {
            result: call for call, results in self.results.items() for result in results
        }

    def find_turn(self, number: int) -> int | None:
        """Return the position among the turns of the one that shows message `number`."""
        place = number - 1
        if place in self._owners:
            place = self._owners[place][0]
        if not 0 <= place < len(self.messages):
            return None
        low, high = 0, len(self.places)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.places[middle] < place else (low, middle)
        return low

    def find_matches(self, wanted: str) -> list[int]:
        """Return the numbers of the messages that contain a text, ignoring case."""
        if not wanted:
            return []
        return [
            place + 1
            for place, message in enumerate(self.messages)
            if any(find_words(wanted, text) for text in iterate_texts(message))
        ]

    def build_page(self, first: int, options: TranscriptOptions) -> TurnsPage:
        """Build the page that begins with turn `first`."""
        first = min(max(first, 0), max(len(self.places) - 1, 0))
        last = first + TURNS_PER_PAGE
        builder = _TurnBuilder(self, options)
        return TurnsPage(
            turns=tuple(builder.build(place) for place in self.places[first:last]),
            first=first,
            total=len(self.places),
            messages=len(self.messages),
            previous=max(first - TURNS_PER_PAGE, 0) if first else None,
            next=last if last < len(self.places) else None,
        )


def read_part(message: Message, part: str) -> str | None:
    """Return the whole text of a part of a message; None for an unknown part."""
    kind, _, rest = part.partition("-")
    if kind == "text":
        return message.text
    if kind == "reasoning":
        return message.reasoning
    numbers = [int(each) for each in rest.split("-") if each.isdecimal() and len(each) < 9]
    if kind == "file" and len(numbers) == 1 and isinstance(message.content, tuple):
        block = next(islice(message.content, numbers[0], None), None)
        file = read_file(block) if isinstance(block, DataBlock) else None
        return None if file is None else decode_text(file)
    if kind == "argument" and len(numbers) == 2 and numbers[0] < len(message.tool_calls):
        listed = _list_arguments(message.tool_calls[numbers[0]])
        return listed[numbers[1]][1] if numbers[1] < len(listed) else None
    return None


class _TurnBuilder:
    """Builds the turns of one page within its budget of characters."""

    def __init__(self, transcript: TranscriptView, options: TranscriptOptions) -> None:
        self._transcript = transcript
        self._options = options
        self._left = _MAX_PAGE_CHARS

    def build(self, place: int) -> Turn:
        message, call = self._transcript.messages[place], self._transcript.model_calls.get(place)
        usage = None if call is None else call.usage
        attachments = self._list_attachments(message)
        # An answer without its call is a turn of its own: its text is that of the result.
        is_result = message.role in _TOOL_ROLES
        return Turn(
            number=place + 1,
            role=message.role,
            name=message.name,
            text=None if is_result else self._show(message.text, "text", place),
            reasoning=self._show(message.reasoning or "", "reasoning", place),
            calls=tuple(
                self._build_call(place, position, each)
                for position, each in enumerate(message.tool_calls[:_MAX_CALLS])
            ),
            more_calls=max(len(message.tool_calls) - _MAX_CALLS, 0),
            attachments=() if is_result else attachments[:_MAX_ATTACHMENTS],
            more_attachments=0 if is_result else max(len(attachments) - _MAX_ATTACHMENTS, 0),
            result=self._build_result(place) if is_result else None,
            model=message.model or (None if call is None else call.model),
            seconds=None if call is None else call.latency_s,
            output_tokens=None if usage is None else usage.output_tokens,
            cost_usd=None if usage is None else usage.cost_usd,
            finish_reason=None if call is None else call.finish_reason,
            timestamp=message.timestamp,
        )

    def _build_call(self, place: int, position: int, call: ToolCall) -> ShownCall:
        arguments = _list_arguments(call)
        return ShownCall(
            id=call.id,
            name=call.name,
            arguments=tuple(
                Argument(name=name, value=shown)
                for number, (name, text) in enumerate(arguments[:_MAX_ARGUMENTS])
                if (shown := self._show(text, f"argument-{position}-{number}", place, empty=True))
            ),
            more_arguments=max(len(arguments) - _MAX_ARGUMENTS, 0),
            malformed=call.malformed,
            results=tuple(
                self._build_result(each)
                for each in self._transcript.results.get((place, position), [])[:_MAX_CALLS]
            ),
        )

    def _build_result(self, place: int) -> ToolResult:
        message = self._transcript.messages[place]
        failed, exit_code = read_tool_outcome(message)
        subagent = (message.details or {}).get("subagent")
        return ToolResult(
            number=place + 1,
            text=self._show(message.text, "text", place),
            attachments=self._list_attachments(message)[:_MAX_ATTACHMENTS],
            failed=failed,
            exit_code=exit_code,
            subagent=subagent if isinstance(subagent, str) else None,
        )

    def _list_attachments(self, message: Message) -> tuple[Attachment, ...]:
        if not isinstance(message.content, tuple):
            return ()
        return tuple(
            read_attachment(block, position)
            for position, block in enumerate(message.content)
            if isinstance(block, DataBlock)
        )

    def _show(self, text: str, part: str, place: int, *, empty: bool = False) -> ShownText | None:
        if not text and not empty:
            return None
        # Each text gets a little room, or the last turns of a page would be empty.
        room = min(_MAX_TEXT_CHARS, max(self._left, _MIN_TEXT_CHARS))
        shown = text[:room]
        self._left -= len(shown)
        quotes = self._options.quotes.get(place + 1, ())
        return ShownText(
            text=shown,
            part=part,
            chars=len(text),
            next_offset=room if len(text) > room else None,
            marks=build_marks(shown, quotes=quotes, wanted=self._options.find),
        )


def _pair_results(messages: Sequence[Message]) -> dict[tuple[int, int], list[int]]:
    """Map each call, as positions of message and call, to the messages that answer it."""
    paired: dict[tuple[int, int], list[int]] = {}
    # The last call with an id gets the answer: some models count from call_1 in every turn.
    by_id: dict[str, tuple[int, int]] = {}
    unnamed: deque[tuple[int, int]] = deque()
    for place, message in enumerate(messages):
        for position, call in enumerate(message.tool_calls):
            if call.id is not None:
                by_id[call.id] = (place, position)
            else:
                unnamed.append((place, position))
        if message.role not in _TOOL_ROLES:
            continue
        owner = by_id.get(message.tool_call_id or "")
        if owner is None and message.tool_call_id is None and unnamed:
            owner = unnamed.popleft()
        if owner is not None:
            paired.setdefault(owner, []).append(place)
    return paired


def _list_arguments(call: ToolCall) -> list[tuple[str, str]]:
    """Return the arguments with their values as text: strings as they are, others as JSON."""
    if call.malformed or not call.arguments:
        text = call.arguments_text
        return [("", text)] if text.strip() not in ("", "{}") else []
    return [
        (name, value if isinstance(value, str) else format_json(value))
        for name, value in call.arguments.items()
    ]


def iterate_texts(message: Message) -> Iterator[str]:
    """Yield the texts of a message that are shown."""
    yield message.text
    if message.reasoning:
        yield message.reasoning
    for call in message.tool_calls:
        yield call.name
        for name, text in _list_arguments(call):
            yield name
            yield text
