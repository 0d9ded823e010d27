"""Truncates long tool outputs, with a visible note."""

from collections.abc import Mapping
from typing import Any

from assay.errors import ConfigError
from assay.types import Message, Sample, TextBlock

# Visible, so that a reader or a judge does not take a cut output for the whole.
_TRUNCATION_NOTE = "… [{left} more characters]"
_SUBAGENTS = "subagents"


def cut_text(text: str, limit: int | None) -> str:
    """Return `text`, or its first `limit` characters and the number of the others."""
    if limit is None or len(text) <= limit:
        return text
    return text[:limit] + _TRUNCATION_NOTE.format(left=len(text) - limit)


def cut_outputs(sample: Sample, limit: int) -> tuple[Sample, int]:
    """Return the sample with tool outputs cut to `limit`, and the number of cut outputs.

    The details of tool messages and the samples of subagents are cut as well.
    """
    if limit < 1:
        raise ConfigError(f"limit={limit} is less than 1", where="cut_outputs()")
    trajectory = sample.trajectory
    messages = () if trajectory is None else trajectory.messages
    shorter = [_cut_message(message, limit) for message in messages]
    # `_cut_message` returns the same object when nothing was cut.
    count = sum(one is not other for one, other in zip(messages, shorter, strict=True))
    changes: dict[str, Any] = {}
    if trajectory is not None and count:
        changes["trajectory"] = trajectory.model_copy(update={"messages": shorter})
    if children := sample.metadata.get(_SUBAGENTS):
        cut = [cut_outputs(Sample.from_dict(child), limit) for child in children]
        count += sum(each for _, each in cut)
        below = [child.to_dict() for child, _ in cut]
        changes["metadata"] = {**sample.metadata, _SUBAGENTS: below}
    return (sample.model_copy(update=changes) if changes else sample), count


def _cut_message(message: Message, limit: int) -> Message:
    if message.role not in ("tool", "function"):
        return message
    content: Any = message.content
    if isinstance(content, str):
        content = cut_text(content, limit)
    elif content is not None:
        content = tuple(
            block.model_copy(update={"text": cut_text(block.text, limit)})
            if isinstance(block, TextBlock)
            else block
            for block in content
        )
    details = _cut_values(message.details, limit)
    if content == message.content and details == message.details:
        return message
    return message.model_copy(update={"content": content, "details": details})


def _cut_values(value: Any, limit: int) -> Any:
    if isinstance(value, str):
        return cut_text(value, limit)
    if isinstance(value, Mapping):
        return {key: _cut_values(each, limit) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_cut_values(each, limit) for each in value]
    return value
