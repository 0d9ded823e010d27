"""Text that somebody else wrote, made safe to stand in Markdown and in workflow commands."""

from .number_format import plain

LONGEST = 300
_MARKS = frozenset("\\`*_[]|~#!@")


def markdown_text(text: str, longest: int = LONGEST) -> str:
    """Text as text: on one line, and nothing in it is read as Markdown or HTML."""
    shown = plain(text, longest).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in _MARKS else each for each in shown)


def command_text(text: str) -> str:
    """The message of a workflow command of GitHub."""
    # A line break would end the command, and what follows could be another one.
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def command_property(text: str) -> str:
    """A property of a workflow command of GitHub."""
    return command_text(text).replace(":", "%3A").replace(",", "%2C")
