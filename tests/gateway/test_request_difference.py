"""`find_difference`: which part of a request differs first, and how it is shown."""

from typing import Any

from assay.gateway.request_difference import find_difference


def ask(*texts: str, **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in texts], **fields}


def test_names_the_text_that_differs_and_shows_a_unified_diff() -> None:
    old, new = ask("hello", "Count:\none\ntwo\nthree"), ask("hello", "Count:\none\n2\nthree")

    found = find_difference(old, new, "messages")

    assert found.part == "messages[1] (user).content"
    assert found.diff == (
        *("--- recorded", "+++ now", "@@ -2,3 +2,3 @@"),
        *(" one", "-two", "+2", " three"),
    )


def test_the_conversation_comes_before_other_fields() -> None:
    old, new = ask("a", model="x"), ask("b", model="y")

    assert find_difference(old, new, "messages").part == "messages[0] (user).content"


def test_an_added_message_is_the_difference() -> None:
    found = find_difference(ask("a"), ask("a", "b"), "messages")

    assert found.part == "messages[1] (user)"
    assert '+ "content": "b"' in found.diff


def test_a_missing_field_is_the_difference() -> None:
    found = find_difference(ask("a", temperature=0.5), ask("a"), "messages")

    assert found.part == "temperature"
    assert found.diff[-1] == "-0.5"


def test_blocks_are_compared_within_a_message() -> None:
    old = {"input": [{"role": "user", "content": [{"type": "text", "text": "a"}]}]}
    new = {"input": [{"role": "user", "content": [{"type": "text", "text": "b"}]}]}

    assert find_difference(old, new, "input").part == "input[0] (user).content[0].text"


def test_a_diff_of_long_texts_is_bounded() -> None:
    old, new = ask("word " * 10_000), ask("other " * 10_000)

    found = find_difference(old, new, "messages")

    assert len(found.diff) <= 25
    assert max(map(len, found.diff)) <= 110
    assert found.diff[-1].startswith("… and ")
