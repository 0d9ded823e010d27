"""Which call continues which: the branches of a session.

An agent's own declaration decides where there is one, else the longest common prefix of the
conversation. Tokens, where they are recorded, decide whether a call continues another exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from assay.types import ForkReason, ModelCall

from .conversation_keys import Key, KeyReader, list_call_texts
from .declared_lineage import DeclaredLineage, read_declared_lineage
from .recorded_call import RecordedCall

# A shorter text may occur in the arguments of a call by chance.
_MIN_PROMPT_CHARS = 20

# The turns among which the one is looked for that started a subagent.
_MAX_STARTERS = 200

DecidedBy = Literal["declared", "tokens", "messages"]


@dataclass(eq=False)
class CallBranch:
    """Calls of which each continues the one before."""

    reason: ForkReason
    parent: "CallBranch | None" = None
    parent_call: RecordedCall | None = None
    name: str | None = None
    decided_by: DecidedBy | None = None
    ambiguous: bool = False
    calls: list[RecordedCall] = field(default_factory=list)
    window: int | None = None
    summary: RecordedCall | None = None
    """The call that summed up the conversation before a compaction."""

    @property
    def last(self) -> RecordedCall | None:
        """The last call with an answer."""
        return next((call for call in reversed(self.calls) if call.succeeded), None)


@dataclass(eq=False)
class CallPlace:
    """The place of one call."""

    branch: CallBranch
    parent: RecordedCall | None
    decided_by: DecidedBy | None


@dataclass(frozen=True)
class _Turn:
    """A successful turn, with its conversation including the answer."""

    call: RecordedCall
    branch: CallBranch
    request: tuple[Key, ...]
    whole: tuple[Key, ...]


class _PrefixIndex:
    """Turns by the prefixes of their conversations, so that placing a call takes one pass."""

    def __init__(self) -> None:
        self._by_whole: dict[int, list[_Turn]] = {}
        self._by_prefix: dict[int, _Turn] = {}

    def add(self, turn: _Turn) -> None:
        """Add a turn; of several with the same prefix, the last one is found."""
        digests = _hash_prefixes(turn.whole)
        for digest in digests:
            self._by_prefix[digest] = turn
        if digests:
            self._by_whole.setdefault(digests[-1], []).append(turn)

    def find_continued(self, request: Sequence[Key]) -> "list[_Turn]":
        """Return the turns with the longest conversation that a request continues."""
        for digest in reversed(_hash_prefixes(request)):
            if digest in self._by_whole:
                return self._by_whole[digest]
        return []

    def find_nearest(self, request: Sequence[Key]) -> "_Turn | None":
        """Return the turn with the longest common prefix; None without any."""
        for digest in reversed(_hash_prefixes(request)):
            if digest in self._by_prefix:
                return self._by_prefix[digest]
        return None


def _hash_prefixes(keys: Sequence[Key]) -> list[int]:
    """Return a hash of each prefix, from the shortest to the whole."""
    found: list[int] = []
    last = 0
    for key in keys:
        last = hash((last, key))
        found.append(last)
    return found


class Lineage:
    """Places the calls of a session, in the order in which they were made."""

    def __init__(self) -> None:
        self.branches: list[CallBranch] = []
        self.places: dict[RecordedCall, CallPlace] = {}
        self._reader = KeyReader()
        self._turns: list[_Turn] = []
        self._index = _PrefixIndex()
        self._named: dict[str, _PrefixIndex] = {}
        self._latest: dict[str, CallBranch] = {}
        self._summaries: list[tuple[str, CallBranch | None, RecordedCall]] = []
        self._continued: set[RecordedCall] = set()
        self._failed: dict[tuple[Key, ...], CallBranch] = {}

    def add(self, call: RecordedCall) -> None:
        """Place the next call."""
        declared = read_declared_lineage(call.headers)
        if call.purpose == "turn":
            request = self._reader.read_request(call)
            place = self._place_turn(call, request, declared)
            if not place.branch.calls:
                self.branches.append(place.branch)
            if place.branch.name is not None:
                self._latest[place.branch.name] = place.branch
            place.branch.calls.append(call)
            if place.parent is not None:
                self._continued.add(place.parent)
            if call.succeeded:
                whole = (*request, *self._reader.read_answer(call))
                turn = _Turn(call, place.branch, request, whole)
                self._turns.append(turn)
                self._index.add(turn)
                if turn.branch.name is not None:
                    self._named.setdefault(turn.branch.name, _PrefixIndex()).add(turn)
            else:
                self._failed[request] = place.branch
            self.places[call] = place
            return
        branch = self._find_declared(declared) or (self._turns[-1].branch if self._turns else None)
        if call.purpose == "summary" and call.succeeded:
            text = " ".join(key[-1] for key in self._reader.read_answer(call) if len(key) == 2)
            self._summaries.append((text, branch, call))
        if branch is not None:
            parent = call.repeats
            self.places[call] = CallPlace(branch, parent, None)

    def _place_turn(
        self, call: RecordedCall, request: tuple[Key, ...], declared: DeclaredLineage | None
    ) -> CallPlace:
        if declared is not None:
            own = self._find_declared(declared)
            if own is None:
                return self._start_declared(declared)
            return self._continue_declared(call, request, declared, own)
        best = self._index.find_continued(request)
        if len(best) > 1:
            # Equal conversations: the one that no other call continues yet.
            free = [turn for turn in best if turn.call not in self._continued]
            if len(free) != 1:
                branch = CallBranch("root", decided_by="messages", ambiguous=True)
                return CallPlace(branch, None, None)
            best = free
        if best:
            return self._continue_turn(call, request, best[0])
        return self._fork(call, request)

    def _find_declared(self, declared: DeclaredLineage | None) -> CallBranch | None:
        return None if declared is None else self._latest.get(declared.conversation)

    def _start_declared(self, declared: DeclaredLineage) -> CallPlace:
        branch = CallBranch("root", name=declared.conversation, decided_by="declared")
        branch.window = declared.window
        if declared.parent is not None:
            branch.reason = "subagent"
            branch.parent = self._find_declared(DeclaredLineage(declared.parent))
            branch.parent_call = None if branch.parent is None else branch.parent.last
        return CallPlace(branch, None, "declared")

    def _continue_declared(
        self,
        call: RecordedCall,
        request: tuple[Key, ...],
        declared: DeclaredLineage,
        own: CallBranch,
    ) -> CallPlace:
        index = self._named.get(declared.conversation) or _PrefixIndex()
        found = index.find_continued(request)
        raised = declared.window is not None and declared.window != own.window
        if found and not raised:
            place = self._continue_turn(call, request, found[-1])
            place.branch.name = declared.conversation
            place.branch.window = declared.window
            place.decided_by = "declared"
            return place
        if own.last is None:
            return CallPlace(own, None, "declared")  # all calls before failed
        fork = CallBranch("edited_history", own, own.last, declared.conversation, "declared")
        fork.window = declared.window
        last = next((each for _, branch, each in self._summaries[-1:] if branch is own), None)
        if raised or last is not None:
            fork.reason, fork.summary = "compaction", last
        elif (nearest := index.find_nearest(request)) is not None:
            fork.parent, fork.parent_call = nearest.branch, nearest.call
            if request == nearest.request:
                fork.reason = "resampled"
        return CallPlace(fork, None, "declared")

    def _continue_turn(
        self, call: RecordedCall, request: tuple[Key, ...], turn: _Turn
    ) -> CallPlace:
        by_tokens = _compare_tokens(call, turn.call)
        decided: DecidedBy = "messages" if by_tokens is None else "tokens"
        if by_tokens is False:
            had = turn.call.reply is not None and turn.call.reply.message.reasoning is not None
            reason: ForkReason = "reasoning_stripped" if had else "retokenized"
            fork = CallBranch(reason, turn.branch, turn.call, turn.branch.name, "tokens")
            return CallPlace(fork, turn.call, "tokens")
        if turn.call is not turn.branch.last:
            nearest = self._index.find_nearest(request)
            same = nearest is not None and nearest.request == request
            reason = "resampled" if same else "edited_history"
            fork = CallBranch(reason, turn.branch, turn.call, turn.branch.name, decided)
            return CallPlace(fork, turn.call, decided)
        return CallPlace(turn.branch, turn.call, decided)

    def _fork(self, call: RecordedCall, request: tuple[Key, ...]) -> CallPlace:
        """Place a call that continues no other one exactly."""
        # Clients try a failed call again: without an answer, it started no conversation yet.
        failed = self._failed.get(request)
        if failed is not None and failed.last is None:
            return CallPlace(failed, None, failed.decided_by)
        texts = [key[-1] for key in request if len(key) == 2]
        for summary, branch, summed in reversed(self._summaries):
            if len(summary) >= _MIN_PROMPT_CHARS and any(summary in text for text in texts):
                last = None if branch is None else branch.last
                fork = CallBranch("compaction", branch, last, None, "messages")
                fork.summary = summed
                return CallPlace(fork, None, "messages")
        nearest = self._index.find_nearest(request)
        if nearest is not None:
            same = request == nearest.request
            reason: ForkReason = "resampled" if same else "edited_history"
            fork = CallBranch(reason, nearest.branch, nearest.call, None, "messages")
            return CallPlace(fork, None, "messages")
        prompt = next((key[-1] for key in request if key[0] == "user"), "")
        if len(prompt) >= _MIN_PROMPT_CHARS:
            for turn in reversed(self._turns[-_MAX_STARTERS:]):
                answer = turn.whole[len(turn.request) :]
                if any(prompt in text for text in list_call_texts(answer, turn.call.answer or {})):
                    child = CallBranch("subagent", turn.branch, turn.call, None, "messages")
                    return CallPlace(child, None, "messages")
        return CallPlace(CallBranch("root"), None, None)


def _compare_tokens(call: RecordedCall, earlier: RecordedCall) -> bool | None:
    """Whether the prompt of a call continues the tokens of an earlier one. None: unknown."""
    own, before = _get_model_call(call), _get_model_call(earlier)
    if own is None or before is None or own.prompt_ids is None:
        return None
    if before.prompt_ids is None or before.completion_ids is None:
        return None
    tokens = (*before.prompt_ids, *before.completion_ids)
    return own.prompt_ids[: len(tokens)] == tokens


def _get_model_call(call: RecordedCall) -> ModelCall | None:
    return None if call.reply is None else call.reply.call
