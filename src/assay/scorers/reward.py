"""`reward_function`: validate and convert the return value of a user's function."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from assay.errors import ConfigError
from assay.types import EvaluateResult, Sample

from .outcome import read_outcome


def reward_function(
    function: Callable[..., object],
) -> Callable[..., EvaluateResult | Awaitable[EvaluateResult]]:
    """Make a function return an `EvaluateResult`.

    A number, a bool, a result, or the sample with its result set become a result; anything else
    raises `ScorerFault`. Works on plain and async functions.
    """
    if not callable(function):
        raise ConfigError(f"{function!r} is not a function", where="reward_function")

    def read(value: object, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> EvaluateResult:
        # Only the id of the sample is used, in the message of a `ScorerFault`.
        given = (*arguments, *keywords.values())
        sample = next((each for each in given if isinstance(each, Sample)), None)
        return read_outcome(value, Sample(id="of this call") if sample is None else sample)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def score_async(*arguments: Any, **keywords: Any) -> EvaluateResult:
            return read(await function(*arguments, **keywords), arguments, keywords)

        return score_async

    @functools.wraps(function)
    def score(*arguments: Any, **keywords: Any) -> EvaluateResult:
        return read(function(*arguments, **keywords), arguments, keywords)

    return score
