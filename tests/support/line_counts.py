"""Counts the work of Python code, so that a test can ask for linear work without a clock."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def count_lines() -> Iterator[Callable[[], int]]:
    """Count the lines of Python that run, those of comprehensions for each element."""
    count = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)
