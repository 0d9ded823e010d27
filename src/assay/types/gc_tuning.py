"""Garbage collection settings for streaming many samples."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

# Python's default is 700. A sample creates many objects and hardly a cycle, yet each collection
# walks everything that is alive: this took a sixth of the time of a sample. The threshold exceeds
# the objects of all samples waiting to be written, so that short-lived ones trigger no collection.
GC_THRESHOLD = 50_000

_gc_lock = Lock()
_users = 0
_usual = (0, 0, 0)


@contextmanager
def reduce_gc_frequency() -> Iterator[None]:
    """Collect garbage less often inside the block, unless it is already rarer or disabled."""
    # The setting is global to the process. Blocks may overlap in any order and thread: the first
    # saves the setting, and the last restores it.
    global _users, _usual
    with _gc_lock:
        _users += 1
        if _users == 1:
            _usual = gc.get_threshold()
            if 0 < _usual[0] < GC_THRESHOLD:
                gc.set_threshold(GC_THRESHOLD, *_usual[1:])
    try:
        yield
    finally:
        with _gc_lock:
            _users -= 1
            if _users == 0:
                gc.set_threshold(*_usual)
