"""Whole numbers as values of options. Imports nothing of assay: every command loads it."""

from argparse import ArgumentTypeError


def count(text: str) -> int:
    """A number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def whole_number(text: str) -> int:
    """A number of 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)
