"""Escape untrusted text for Markdown and for GitHub's workflow commands."""

from .number_format import clean_text

MAX_MARKDOWN_LENGTH = 300
# `@` would notify a user of GitHub, and `|` end a cell of a table.
_MARKDOWN_MARKS = frozenset("\\`*_[]|~#!@")


def escape_markdown(text: str, longest: int = MAX_MARKDOWN_LENGTH) -> str:
    """Escape text for one line of Markdown, so that none of it is markup or HTML."""
    shown = clean_text(text, longest).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in _MARKDOWN_MARKS else each for each in shown)


def escape_command(text: str) -> str:
    """Escape the message of a workflow command of GitHub."""
    # A line break would end the command, and the next line could be another command.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def escape_command_property(text: str) -> str:
    """Escape a property of a workflow command of GitHub."""
    return escape_command(text).replace(":", "%3A").replace(",", "%2C")
