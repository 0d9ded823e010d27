"""Texts in user records, told apart in one pass however they are made."""

import pytest

from assay.sessions.claude_code_texts import extract_tag, find_skip_reason, is_notification, text_of

MANY = 400_000
"""Characters or tags. What starts again at each of them would not end."""


def test_the_text_between_two_tags_is_found() -> None:
    assert extract_tag("x<a> y </a></a>", "a") == " y "
    assert extract_tag("<a>y", "a") is None
    assert extract_tag("</a><b>", "a") is None


@pytest.mark.parametrize(
    "text",
    [
        "<command-name>" + " " * MANY,
        "<command-name>" * MANY,
        "<command-message>x</command-message>" + "<command-name> " * MANY,
        "<bash-input>" * MANY,
        "<bash-stdout>" + "<bash-stdout>" * MANY,
        "<local-command-" + "a" * MANY,
        "<ide_" + "_" * MANY,
        " " * MANY,
    ],
    ids=str.split,
)
def test_a_text_of_any_size_is_told_apart_in_one_pass(text: str) -> None:
    find_skip_reason({}, {"type": "text", "text": text})

    assert extract_tag(text, "command-name") is None
    assert extract_tag(text, "bash-stdout") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Hi", None),
        ("<bash-input>ls", None),
        ("<bash-input>ls</bash-input>", "shell command of the user"),
        ("<bash-stdout>x</bash-stdout>", "shell command of the user"),
        ("<command-name>/init</command-name>", "command"),
        ("<command-name>/init", None),
        ("[Request interrupted by user]", "interruption"),
        ("<system-reminder>x</system-reminder>", "injected by the program"),
    ],
)
def test_what_the_user_did_not_type_has_a_reason(text: str, why: str | None) -> None:
    assert find_skip_reason({}, {"type": "text", "text": text}) == why


def test_only_text_can_be_a_notification() -> None:
    assert is_notification({"type": "text", "text": "\n<task-notification>"})
    assert not is_notification({"type": "image"})
    assert text_of("text") == ""
