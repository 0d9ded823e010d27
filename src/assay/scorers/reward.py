"""`reward_function`: validate and convert the return value of a user's function."""

import functools
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from assay.errors import ConfigError
from assay.types import EvaluateResult

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

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def score_async(*arguments: Any, **keywords: Any) -> EvaluateResult:
            return read_outcome(await function(*arguments, **keywords))

        return score_async

    @functools.wraps(function)
    def score(*arguments: Any, **keywords: Any) -> EvaluateResult:
        return read_outcome(function(*arguments, **keywords))

    return score
