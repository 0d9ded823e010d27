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
from .request_parts import count_common_prefix

# A shorter text may occur in the arguments of a call by chance.
_MIN_PROMPT_CHARS = 20

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


class Lineage:
    """Places the calls of a session, in the order in which they were made."""

    def __init__(self) -> None:
        self.branches: list[CallBranch] = []
        self.places: dict[RecordedCall, CallPlace] = {}
        self._reader = KeyReader()
        self._turns: list[_Turn] = []
        self._summaries: list[tuple[str, CallBranch | None, RecordedCall]] = []
        self._continued: set[RecordedCall] = set()

    def add(self, call: RecordedCall) -> None:
        """Place the next call."""
        declared = read_declared_lineage(call.headers)
        if call.purpose == "turn":
            request = self._reader.read_request(call)
            place = self._place_turn(call, request, declared)
            if place.branch not in self.branches:
                self.branches.append(place.branch)
            place.branch.calls.append(call)
            if place.parent is not None:
                self._continued.add(place.parent)
            if call.succeeded:
                whole = (*request, *self._reader.read_answer(call))
                self._turns.append(_Turn(call, place.branch, request, whole))
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
        found = [turn for turn in self._turns if _extends(request, turn.whole)]
        longest = max((len(turn.whole) for turn in found), default=0)
        best = [turn for turn in found if len(turn.whole) == longest and longest]
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
        if declared is None:
            return None
        named = (each for each in reversed(self.branches) if each.name == declared.conversation)
        return next(named, None)

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
        turns = [turn for turn in self._turns if turn.branch.name == declared.conversation]
        found = [turn for turn in turns if _extends(request, turn.whole)]
        raised = declared.window is not None and declared.window != own.window
        if found and not raised:
            best = max(found, key=lambda turn: (len(turn.whole), turn.call.number))
            place = self._continue_turn(call, request, best)
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
        elif turns and not found:
            nearest = max(turns, key=lambda turn: count_common_prefix(request, turn.whole))
            fork.parent, fork.parent_call = nearest.branch, nearest.call
            if _extends(request, nearest.request):
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
            same = any(each.request == request for each in self._turns)
            reason = "resampled" if same else "edited_history"
            fork = CallBranch(reason, turn.branch, turn.call, turn.branch.name, decided)
            return CallPlace(fork, turn.call, decided)
        return CallPlace(turn.branch, turn.call, decided)

    def _fork(self, call: RecordedCall, request: tuple[Key, ...]) -> CallPlace:
        """Place a call that continues no other one exactly."""
        texts = [key[-1] for key in request if len(key) == 2]
        for summary, branch, summed in reversed(self._summaries):
            if len(summary) >= _MIN_PROMPT_CHARS and any(summary in text for text in texts):
                last = None if branch is None else branch.last
                fork = CallBranch("compaction", branch, last, None, "messages")
                fork.summary = summed
                return CallPlace(fork, None, "messages")
        nearest = max(
            self._turns, key=lambda turn: count_common_prefix(request, turn.whole), default=None
        )
        common = 0 if nearest is None else count_common_prefix(request, nearest.whole)
        if nearest is not None and common:
            same = request == nearest.request
            reason: ForkReason = "resampled" if same else "edited_history"
            fork = CallBranch(reason, nearest.branch, nearest.call, None, "messages")
            return CallPlace(fork, None, "messages")
        prompt = next((key[-1] for key in request if key[0] == "user"), "")
        if len(prompt) >= _MIN_PROMPT_CHARS:
            for turn in reversed(self._turns):
                answer = turn.whole[len(turn.request) :]
                if any(prompt in text for text in list_call_texts(answer, turn.call.answer or {})):
                    child = CallBranch("subagent", turn.branch, turn.call, None, "messages")
                    return CallPlace(child, None, "messages")
        return CallPlace(CallBranch("root"), None, None)


def _extends(keys: Sequence[Key], earlier: Sequence[Key]) -> bool:
    return len(keys) >= len(earlier) and tuple(keys[: len(earlier)]) == tuple(earlier)


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
