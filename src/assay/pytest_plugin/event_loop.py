"""The event loop of an async test, where a plugin such as pytest-asyncio or anyio provides one.

Async fixtures belong to that loop, so the evaluation has to run in it.
"""

import asyncio
import functools
import inspect
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from .decorator import EvalOptions
from .session_report import Evaluations
from .verdict import TestVerdict, fail_test, run_test_in_loop

if TYPE_CHECKING:
    import pytest

IN_LOOP_ATTRIBUTE = "__assay_in_loop__"


def run_call(
    item: "pytest.Function", options: EvalOptions, evaluations: Evaluations
) -> Generator[None, object, object]:
    """Replace the function of an async test by its evaluation during the call.

    A plugin that runs async functions then runs the whole evaluation in its loop. The verdict is
    raised outside of the loop, because not every runner passes such exceptions through.
    """
    verdicts: list[TestVerdict] = []

    @functools.wraps(options.function)
    async def evaluate(**fixtures: Any) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            fault = (
                f"{item.name}: an evaluation runs on asyncio, not in the loop of another backend"
            )
            verdicts.append(TestVerdict(problem=fault))
            return
        verdicts.append(await run_test_in_loop(item, options, evaluations))

    setattr(evaluate, IN_LOOP_ATTRIBUTE, True)
    usual = item.obj
    item.obj = evaluate
    try:
        result = yield
    finally:
        item.obj = usual
    for verdict in verdicts:
        fail_test(item, verdict)
    return result


def has_loop(item: "pytest.Function") -> bool:
    """Whether a plugin runs this test in its own event loop."""
    if not hasattr(item.obj, IN_LOOP_ATTRIBUTE):
        return False
    # pytest-asyncio replaces the function by a plain one; anyio runs it by itself.
    return not inspect.iscoroutinefunction(item.obj) or "anyio_backend" in item.funcargs
