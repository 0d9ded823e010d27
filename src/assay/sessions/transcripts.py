"""The conversation of a recorded session, and how it becomes a sample."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.types import Message, ModelCall, Sample, Status, Trajectory, stable_id


@dataclass
class Conversation:
    """Messages and metadata of a session, while it is read."""

    messages: list[Message] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    skipped: list[dict[str, Any]] = field(default_factory=list)
    """Texts that the program injected, with the reason why each is skipped."""

    user_shell: list[dict[str, Any]] = field(default_factory=list)
    reverted: list[Any] = field(default_factory=list)
    records: list[Any] = field(default_factory=list)
    """Unchanged records of unknown kinds, or all records that are not messages."""

    omitted: Counter[str] = field(default_factory=Counter)
    """The number of records of each known kind that is not a message."""

    tools: list[dict[str, Any]] = field(default_factory=list)
    """The tools of the model, as `ToolSpec` serializes them."""

    cost_usd: float | None = None
    """Cost of the whole session, if the agent records only the total."""

    unknown_kinds: Counter[str] = field(default_factory=Counter)
    """Kinds of records that this version of assay does not know, with the number of records."""

    compactions: int = 0
    duration: float | None = None
    interrupted: bool = False
    """Whether the user stopped the last turn."""

    def skip(self, record_id: Any, why: str, part: Any, *, synthetic: bool = True) -> None:
        """Record a part that is not a message of the conversation."""
        entry = {"id": record_id, "why": why, "parts": [part]}
        self.skipped.append({**entry, "synthetic": True} if synthetic else entry)

    def to_sample(self, session_id: str, given: dict[str, Any], metadata: dict[str, Any]) -> Sample:
        """Build the sample. Unknown values are omitted from `input` and `metadata`."""
        found = {
            "skipped": self.skipped,
            "user_shell": self.user_shell,
            "reverted_messages": self.reverted,
            "compactions": self.compactions,
            "records": self.records,
            "omitted_records": dict(self.omitted) or None,
            "unknown_records": dict(self.unknown_kinds) or None,
            "content_id": compute_content_id(self.messages),
        }
        roles = [message.role for message in self.messages]
        # The prompt ends where the agent first speaks.
        opening = roles.index("assistant") if "assistant" in roles else len(roles)
        status = self.compute_status()
        # The agent's own reason, unless the last turn is the user's.
        last = self.last_turn
        answered = last is not None and self.messages and self.messages[-1].role != "user"
        reason = (last.error or last.finish_reason) if last is not None and answered else None
        if self.interrupted:
            reason = "interrupted"
        return Sample(
            id=session_id,
            input={key: value for key, value in given.items() if value is not None},
            prompt=list(self.messages[:opening]),
            trajectory=Trajectory(
                messages=self.messages,
                calls=self.calls,
                steps=sum(call.purpose == "turn" for call in self.calls),
                terminated=status is Status.COMPLETED,
                truncated=status is Status.TRUNCATED,
                termination_reason=reason,
                duration=self.duration,
                cost_usd=self.cost_usd,
                # Exporters read this field. Absent, not empty, if the agent records no tools.
                **({"tools": self.tools} if self.tools else {}),
            ),
            status=status,
            metadata={k: v for k, v in {**metadata, **found}.items() if v not in (None, [], 0)},
        )

    @property
    def last_turn(self) -> ModelCall | None:
        """The last call of the conversation: a compaction may be requested after it."""
        return next((call for call in reversed(self.calls) if call.purpose == "turn"), None)

    def compute_status(self) -> Status:
        """Return how the session ended, by its last message and its last model call."""
        if self.interrupted or not self.messages or self.messages[-1].role != "assistant":
            return Status.ABORTED
        last = self.last_turn or ModelCall()
        if last.error is not None or self.messages[-1].tool_calls:
            return Status.ABORTED
        cut = last.finish_reason in ("length", "max_tokens", "max_output_tokens")
        return Status.TRUNCATED if cut else Status.COMPLETED


def compute_content_id(messages: Sequence[Message]) -> str:
    """Return an id that is equal for equal messages, such as a copy with other ids."""
    return stable_id(
        [
            [each.role, each.text, [[call.name, call.arguments] for call in each.tool_calls]]
            for each in messages
        ]
    )
