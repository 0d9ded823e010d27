"""Garbage collection settings for streaming many samples."""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

# Python's default is 700. A sample creates many objects and hardly a cycle, yet each collection
# walks everything that is alive: this took a sixth of the time of a sample. The threshold exceeds
# the objects of all samples waiting to be written, so that short-lived ones trigger no collection.
GC_THRESHOLD = 50_000

# Reentrant: a collection inside may end a block that was abandoned in a reference cycle.
_gc_lock = RLock()
_open_blocks = set[object]()
_usual: tuple[int, int, int] | None = None
"""The setting to restore. None: it was not changed."""


@contextmanager
def reduce_gc_frequency() -> Iterator[None]:
    """Collect garbage less often inside the block, unless it is already rarer or disabled."""
    # The setting is global to the process. Blocks may overlap in any order and thread: the first
    # changes the setting, and the last restores it.
    global _usual
    block = object()
    try:
        with _gc_lock:
            _open_blocks.add(block)
            found = gc.get_threshold()
            if _usual is None and 0 < found[0] < GC_THRESHOLD:
                _usual = found
                gc.set_threshold(GC_THRESHOLD, *found[1:])
        yield
    finally:
        with _gc_lock:
            _open_blocks.discard(block)
            if not _open_blocks:
                _restore_threshold()


def _restore_threshold() -> None:
    global _usual
    usual, _usual = _usual, None
    # Another value was set by user code inside the block: it stays.
    if usual is not None and gc.get_threshold()[0] == GC_THRESHOLD:
        gc.set_threshold(*usual)


def _restore_in_child() -> None:
    # The blocks belong to threads and event loops of the parent, which a fork does not copy.
    global _gc_lock
    _gc_lock = RLock()
    _open_blocks.clear()
    _restore_threshold()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_restore_in_child)
