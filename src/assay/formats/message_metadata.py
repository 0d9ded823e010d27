"""Stores results on messages: a turn's on its message, a trajectory's on the last one."""

from collections.abc import Sequence

from assay.errors import WireError
from assay.types import MAX_PAIRS, EvaluateResult, Message, is_result_key, write_metadata


def attach_result(message: Message, result: EvaluateResult, *, lossless: bool = False) -> Message:
    """Return a copy of `message` with `result` in place of an earlier result.

    Other metadata is kept. Raises `WireError` when the result does not fit beside it.
    """
    # An earlier result is removed first, so that its pairs do not count against the limit.
    others = {key: value for key, value in message.metadata.items() if not is_result_key(key)}
    pairs = write_metadata(result, lossless=lossless, max_pairs=MAX_PAIRS - len(others))
    return message.model_copy(update={"metadata": {**others, **pairs}})


def read_result(message: Message) -> EvaluateResult | None:
    """Return the result on `message`, or None."""
    if not any(is_result_key(key) for key in message.metadata):
        return None
    return EvaluateResult.from_openai_metadata(message.metadata)


def attach_trajectory_result(
    messages: Sequence[Message], result: EvaluateResult, *, lossless: bool = False
) -> list[Message]:
    """Return the messages with the trajectory's result on the last one.

    It replaces a result of the last turn.
    """
    if not messages:
        raise WireError(
            "the trajectory has no message to carry the result",
            where="attach_trajectory_result()",
            hint="pass at least one message",
        )
    return [*messages[:-1], attach_result(messages[-1], result, lossless=lossless)]


def read_trajectory_result(messages: Sequence[Message]) -> EvaluateResult | None:
    """Return the result on the last message, or None."""
    return read_result(messages[-1]) if messages else None
