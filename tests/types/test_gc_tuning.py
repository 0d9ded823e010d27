"""The garbage collector during a run: less often, and afterwards as it was."""

import gc
import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Barrier

import pytest

from assay.types.gc_tuning import GC_THRESHOLD, reduce_gc_frequency


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


def test_collects_less_often_inside_and_as_before_afterwards() -> None:
    gc.set_threshold(700, 10, 9)

    with reduce_gc_frequency():
        inside = gc.get_threshold()

    assert inside == (GC_THRESHOLD, 10, 9)
    assert gc.get_threshold() == (700, 10, 9)


def test_is_put_back_when_the_run_breaks() -> None:
    gc.set_threshold(700, 10, 10)

    with pytest.raises(RuntimeError), reduce_gc_frequency():
        raise RuntimeError

    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [0, GC_THRESHOLD * 5])
def test_leaves_a_setting_alone_that_is_rarer_or_off(own: int) -> None:
    gc.set_threshold(own, 10, 10)

    with reduce_gc_frequency():
        assert gc.get_threshold() == (own, 10, 10)

    assert gc.get_threshold() == (own, 10, 10)


def test_runs_that_overlap_put_back_what_the_first_one_found() -> None:
    gc.set_threshold(700, 10, 10)
    first, second = ExitStack(), ExitStack()

    first.enter_context(reduce_gc_frequency())
    second.enter_context(reduce_gc_frequency())
    first.close()
    still = gc.get_threshold()
    second.close()

    assert still == (GC_THRESHOLD, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_a_setting_that_user_code_makes_inside_stays() -> None:
    gc.set_threshold(700, 10, 10)

    with reduce_gc_frequency():
        gc.set_threshold(1234, 5, 5)

    assert gc.get_threshold() == (1234, 5, 5)


def test_a_block_that_is_abandoned_is_closed_with_its_garbage() -> None:
    gc.set_threshold(700, 10, 10)
    holder: dict[str, object] = {"stack": ExitStack()}
    stack = holder["stack"]
    assert isinstance(stack, ExitStack)
    stack.enter_context(reduce_gc_frequency())
    holder["itself"] = holder

    del stack, holder
    gc.collect()

    assert gc.get_threshold() == (700, 10, 10)


def test_blocks_of_many_threads_leave_what_was_before() -> None:
    gc.set_threshold(700, 10, 10)
    barrier = Barrier(8)

    def enter_often() -> None:
        barrier.wait(60)
        for _ in range(200):
            with reduce_gc_frequency():
                pass

    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(enter_often) for _ in range(8)]:
            each.result()

    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_collects_as_before() -> None:
    gc.set_threshold(700, 10, 10)

    with warnings.catch_warnings(), reduce_gc_frequency():
        # Of Python 3.12, about forks of processes with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.get_threshold() == (700, 10, 10) else 1)
        _, status = os.waitpid(child, 0)
        assert gc.get_threshold()[0] == GC_THRESHOLD

    assert os.waitstatus_to_exitcode(status) == 0
