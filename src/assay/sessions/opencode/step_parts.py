"""Split an assistant message into steps: one step is one model call."""

from dataclasses import dataclass, field
from typing import Any

# Keys of a text part that the message already contains.
_STUB_KEYS = frozenset("id type text time sessionID messageID synthetic ignored".split())


@dataclass
class StepParts:
    """The parts of one step, by kind."""

    content: list[str | dict[str, Any]] = field(default_factory=list)
    """Texts, and the parts of files, in the order in which they were stored."""

    reasoning: list[str] = field(default_factory=list)
    tools: list[dict[str, Any]] = field(default_factory=list)
    others: list[dict[str, Any]] = field(default_factory=list)
    """Unchanged parts of unknown kinds, and those that a message has no field for."""

    finish: dict[str, Any] | None = None
    started: bool = False

    @property
    def texts(self) -> list[str]:
        return [each for each in self.content if isinstance(each, str)]

    @property
    def has_content(self) -> bool:
        return bool(self.content or self.reasoning or self.tools)


def split_steps(parts: list[dict[str, Any]]) -> list[StepParts]:
    """Return at least one step. Since 1.0 a message has exactly one."""
    steps = [StepParts()]
    for part in parts:
        # The first mark belongs to the step that is already open.
        if part.get("type") == "step-start" and (steps[-1].has_content or steps[-1].finish):
            steps.append(StepParts())
        step = steps[-1]
        kind, text = part.get("type"), part.get("text")
        if kind == "tool":
            step.tools.append(part)
        elif isinstance(text, str) and (
            kind == "reasoning" or (kind == "text" and not part.get("ignored"))
        ):
            (step.reasoning if kind == "reasoning" else step.content).append(text)
            # Provider data attached to a text, such as a signature.
            if not part.keys() <= _STUB_KEYS:
                step.others.append({key: value for key, value in part.items() if key != "text"})
        elif kind == "file":
            step.content.append(part)
        else:
            step.started |= kind == "step-start"
            if kind == "step-finish":
                step.finish = part
            step.others.append(drop_container_ids(part))
    return steps


def drop_container_ids(part: dict[str, Any]) -> dict[str, Any]:
    """Return a part without the ids of its session and message."""
    return {key: value for key, value in part.items() if key not in ("sessionID", "messageID")}
