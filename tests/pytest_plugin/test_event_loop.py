"""The loop of an async test: a loop of another library is refused in words."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from assay.pytest_plugin import evaluation_test
from assay.pytest_plugin.decorator import eval_options_of
from assay.pytest_plugin.event_loop import has_loop, run_call


@evaluation_test([{"question": "?"}])
async def judge(question: str) -> float:
    return 1.0


def make_item(**fields: Any) -> Any:
    config = SimpleNamespace(getoption=lambda name: False)
    return SimpleNamespace(name="test_a", obj=judge, config=config, funcargs={}, **fields)


def test_a_loop_that_is_not_asyncio_fails_the_test_and_the_function_comes_back() -> None:
    asked, item = eval_options_of(judge), make_item()
    assert asked is not None
    call = run_call(item, asked, cast(Any, None))
    next(call)
    coroutine = item.obj()

    with pytest.raises(StopIteration):
        coroutine.send(None)
    with pytest.raises(pytest.fail.Exception, match="test_a: an evaluation runs on asyncio"):
        call.send(None)

    assert item.obj is judge


def test_only_a_function_that_a_plugin_took_over_has_a_loop() -> None:
    item = make_item()
    assert not has_loop(item)
    asked = eval_options_of(judge)
    assert asked is not None
    call = run_call(item, asked, cast(Any, None))
    next(call)

    assert not has_loop(item)
    item.funcargs["anyio_backend"] = "asyncio"
    assert has_loop(item)
