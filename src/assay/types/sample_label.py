"""The short label of a sample, shown beside its id."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not at run time: commands that read a store show labels without loading the data model.
    from .sample import Sample

# Limits the work of measuring; lines cut a label further to the columns they have.
_MAX_LABEL_CHARS = 200
_MAX_LINES = 100


def build_label(sample: "Sample") -> str:
    """Return the title of a session, else the first line of the question, else "".

    Of a prompt that was filled from the row, it is the first line with a value of the row.
    """
    title = sample.input.get("title")
    if isinstance(title, str) and title.strip():
        return title[:_MAX_LABEL_CHARS]
    question = sample.prompt
    if not isinstance(question, str):
        texts = (message.text for message in sample.messages if message.role == "user")
        question = next(filter(None, texts), "")
    lines = [line for each in question.splitlines() if (line := each.strip())]
    if len(lines) > 1 and question is sample.prompt and question not in sample.input.values():
        # A prompt file was filled from the row: its first lines may be those of every sample.
        values = [each for each in sample.input.values() if isinstance(each, str) and each.strip()]
        own = (line for line in lines[:_MAX_LINES] if any(value in line for value in values))
        return next(own, lines[0])[:_MAX_LABEL_CHARS]
    return lines[0][:_MAX_LABEL_CHARS] if lines else ""
