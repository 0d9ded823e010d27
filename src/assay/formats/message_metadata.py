"""Results that ride on messages: one turn's on its message, a trajectory's on the last one."""

from collections.abc import Sequence

from assay.errors import WireError
from assay.types import MAX_PAIRS, EvaluateResult, Message, is_result_key, write_metadata


def attach_result(message: Message, result: EvaluateResult, *, lossless: bool = False) -> Message:
    """A copy of `message` that carries `result` in place of any result it carried.

    Other metadata stays. Raises `WireError` when there is no room for the result beside it.
    """
    others = {key: value for key, value in message.metadata.items() if not is_result_key(key)}
    pairs = write_metadata(result, lossless=lossless, max_pairs=MAX_PAIRS - len(others))
    return message.model_copy(update={"metadata": {**others, **pairs}})


def read_result(message: Message) -> EvaluateResult | None:
    """The result that `message` carries, or None when it carries none."""
    if not any(is_result_key(key) for key in message.metadata):
        return None
    return EvaluateResult.from_openai_metadata(message.metadata)


def attach_trajectory_result(
    messages: Sequence[Message], result: EvaluateResult, *, lossless: bool = False
) -> list[Message]:
    """The messages of a trajectory, the last of which carries the result of the whole.

    It takes the place of a result of the last turn.
    """
    if not messages:
        raise WireError(
            "the trajectory has no message to carry the result",
            where="attach_trajectory_result()",
            hint="pass at least one message",
        )
    return [*messages[:-1], attach_result(messages[-1], result, lossless=lossless)]


def read_trajectory_result(messages: Sequence[Message]) -> EvaluateResult | None:
    """The result that the last message carries, or None when it carries none."""
    return read_result(messages[-1]) if messages else None
