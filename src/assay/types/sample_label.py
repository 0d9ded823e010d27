"""The short label of a sample, shown beside its id."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not at run time: commands that read a store show labels without loading the data model.
    from .sample import Sample

# Limits the work of measuring; lines cut a label further to the columns they have.
_MAX_LABEL_CHARS = 200


def build_label(sample: "Sample") -> str:
    """Return the title of a session, else the first line of the question, else ""."""
    title = sample.input.get("title")
    if isinstance(title, str) and title.strip():
        return title[:_MAX_LABEL_CHARS]
    question = sample.prompt
    if not isinstance(question, str):
        texts = (message.text for message in sample.messages if message.role == "user")
        question = next(filter(None, texts), "")
    lines = (line.strip() for line in question.splitlines())
    return next(filter(None, lines), "")[:_MAX_LABEL_CHARS]
