"""Splits a conversation into the agent's own turns and their context.

Training uses the agent's own turns only. Assistant turns of the prompt come from another author,
and are context like the user's.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import WireError
from assay.types import Message, Sample, Status, TextBlock, Trajectory

from .conversion import Dropped, validate_wire
from .tool_schemas import find_tools, read_tools, report_unknown_tools

_ANSWER_ROLES = ("assistant", "tool", "function")


@dataclass(frozen=True)
class AgentTurns:
    """A conversation, split at the agent's first turn."""

    context: list[Message]
    """Everything before the agent's first turn."""

    made: list[Message]
    """From the agent's first turn to its last, with the messages between them."""

    own: frozenset[int]
    """The positions in `made` of the agent's turns. Other assistant turns there are foreign."""

    cut: int = 0
    """The number of messages after the agent's last turn, which training ignores."""

    def report_trailing_messages(self, dropped: list[Dropped]) -> None:
        """Report the messages after the last turn as dropped."""
        if self.cut:
            dropped.append(Dropped("messages", "messages after the agent's last turn; left out"))

    @property
    def foreign(self) -> bool:
        """Whether training on every assistant turn would include turns of other authors."""
        inside = (n for n, message in enumerate(self.made) if message.role == "assistant")
        return any(message.role == "assistant" for message in self.context) or any(
            n not in self.own for n in inside
        )


def split_agent_turns(sample: Sample) -> AgentTurns:
    """Split a conversation. Raises `WireError` when the agent's turns are missing or ambiguous."""
    messages = sample.messages
    if sample.trajectory is None:
        taken = _find_closing_turns(messages)
    # Recorded calls are exact. Comparing with the prompt is the fallback for imported data.
    elif (recorded := _find_recorded_turns(sample.trajectory)) is not None:
        taken = recorded
    else:
        failed = find_failed_turns(sample.trajectory)
        later = set(range(_find_prompt_end(sample), len(messages))) - failed
        taken = [n for n in sorted(later) if messages[n].role == "assistant"]
    # A `weight` of 0 is OpenAI's mark for a turn that is excluded from training.
    places = [
        place for place in taken if (messages[place].__pydantic_extra__ or {}).get("weight") != 0
    ]
    if not places:
        raise WireError("the agent took no turn", where=f"sample {sample.id}")
    first, last = places[0], places[-1]
    return AgentTurns(
        context=list(messages[:first]),
        made=list(messages[first : last + 1]),
        own=frozenset(place - first for place in places),
        cut=len(messages) - last - 1,
    )


def split_training_turns(
    sample: Sample, dropped: list[Dropped], *, allow_foreign: bool = True
) -> tuple[AgentTurns, list[dict[str, Any]]]:
    """Return the split conversation and its tools, and report the parts that a row leaves out.

    Without `allow_foreign` raises `WireError` for assistant turns of other authors.
    """
    turns, tools = split_agent_turns(sample), find_tools(sample)
    if turns.foreign and not allow_foreign:
        raise WireError(
            "assistant turns of the prompt would be trained on",
            where=f"sample {sample.id}",
            hint="use `trl-sft`, which keeps prompt and completion apart",
        )
    turns.report_trailing_messages(dropped)
    report_unknown_tools(turns.made, tools, dropped)
    return turns, tools


def build_training_sample(
    fields: dict[str, Any], prompt: list[Message], answer: list[Message], tools: object
) -> Sample:
    """Build the sample of a training row: a prompt, and the agent's turns where there are any."""
    fields = {**fields, "prompt": prompt}
    if answer:
        fields["trajectory"] = Trajectory(messages=[*prompt, *answer])
        fields["status"] = Status.COMPLETED
    if tools:
        fields["metadata"] = {"tools": read_tools(tools, "tools")}
    return validate_wire(Sample, fields, "row")


def find_failed_turns(trajectory: Trajectory) -> set[int]:
    """Return the positions of messages without an answer, those of failed calls."""
    failed, answered = (
        {
            call.message_index
            for call in trajectory.calls
            if call.message_index is not None and (call.error is not None) is is_failed
        }
        for is_failed in (True, False)
    )
    # A later attempt at the same position may have succeeded.
    return failed - answered


def get_prompt_messages(sample: Sample) -> list[Message]:
    """Return the messages that a new rollout of the sample begins with; may be empty."""
    if isinstance(sample.prompt, str):
        return [Message(role="user", content=sample.prompt)] if sample.prompt else []
    if sample.trajectory is None:
        places = _find_closing_turns(sample.prompt)
        return list(sample.prompt[: places[0]] if places else sample.prompt)
    return list(sample.prompt)


def flatten_to_text(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with plain text as content. Raises `WireError` for other blocks."""
    flat: list[Message] = []
    for index, message in enumerate(messages):
        if not isinstance(message.content, str):
            for n, block in enumerate(message.content or ()):
                if not isinstance(block, TextBlock):
                    where = f"messages[{index}].content[{n}]"
                    raise WireError(f"a `{block.type}` block is not text", where=where)
            # Empty text rather than null, which chat templates print as `None`.
            message = message.model_copy(update={"content": message.text})
        flat.append(message)
    return flat


def _find_closing_turns(messages: Sequence[Message]) -> list[int]:
    # The assistant turns at the end, after the last user or system message.
    start = len(messages)
    while start and messages[start - 1].role in _ANSWER_ROLES:
        start -= 1
    return [n for n in range(start, len(messages)) if messages[n].role == "assistant"]


def _find_recorded_turns(trajectory: Trajectory) -> list[int] | None:
    # None when a call lacks its position, or when positions do not match the messages, as after
    # an edit of the conversation.
    calls = [call for call in trajectory.calls if call.error is None and call.purpose == "turn"]
    places = sorted({call.message_index for call in calls if call.message_index is not None})
    known = all(call.message_index is not None for call in calls)
    fits = all(
        0 <= place < len(trajectory.messages) and trajectory.messages[place].role == "assistant"
        for place in places
    )
    return places if places and known and fits else None


def _find_prompt_end(sample: Sample) -> int:
    # The prompt may start late: an environment can put its own messages before it.
    messages, prompt = sample.messages, get_prompt_messages(sample)
    for offset in range(len(messages) - len(prompt) + 1 if prompt else 0):
        pairs = zip(messages[offset : offset + len(prompt)], prompt, strict=True)
        # Other fields, such as timestamps, may differ between the prompt and its record.
        if all((a.role, a.text, a.tool_calls) == (b.role, b.text, b.tool_calls) for a, b in pairs):
            return offset + len(prompt)
    if any(message.role == "assistant" for message in prompt):
        raise WireError(
            "the prompt's assistant turns cannot be distinguished from the agent's",
            where=f"sample {sample.id}",
            hint="record the model calls with their `message_index`",
        )
    return 0
