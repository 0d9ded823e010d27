"""A metric of one's own: it takes the sample, and returns a bool."""

import re

from assay.types import Sample

_WANTED = re.compile(r" (?:to|in) (°?[A-Za-z]+)[.?]")


def names_unit(sample: Sample) -> bool:
    """Whether the answer names the unit that was asked for, where one was."""
    question = sample.messages[0] if sample.messages[0].role == "user" else sample.messages[1]
    asked = _WANTED.search(question.text)
    return asked is None or re.search(rf"\d {re.escape(asked[1])}\b", sample.response) is not None
