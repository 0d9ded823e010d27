"""The garbage collector during a run: less often, and afterwards as it was."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack

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
