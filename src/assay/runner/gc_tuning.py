"""How often Python looks for cyclic garbage while samples stream through."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

GC_THRESHOLD = 50_000
"""Python's own is 700. A sample makes many objects and hardly a cycle, so that the search, which
also goes through everything that stays, took a sixth of the time of a sample. This is more than
the samples that wait to be written hold: objects that come and go start no search at all."""

_gc_lock = Lock()
_users = 0
_usual = (0, 0, 0)


@contextmanager
def reduce_gc_frequency() -> Iterator[None]:
    """Search less often inside the block. A setting that is rarer already, or off, is left alone.

    The setting is the process's: blocks may overlap, in any order and in any thread, and the last
    to end puts back what the first one found.
    """
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
