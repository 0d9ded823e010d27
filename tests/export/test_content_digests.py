"""Digests of conversations, and what was seen, in memory and beyond it."""

from assay.export.content_digests import DigestTable, digest_conversation, digest_json
from assay.types import Message
from make import answered, asked, called, said


def test_ids_times_and_models_do_not_make_another_conversation() -> None:
    plain = [asked("?"), said(None, called("f", "1", a=1)), answered("x", "1")]
    other = [
        Message(role="user", content="?", timestamp="2026-01-01T00:00:00Z"),
        Message(role="assistant", tool_calls=(called("f", "9", a=1),), model="m"),
        answered("x", "9"),
    ]

    assert digest_conversation(plain) == digest_conversation(other)


def test_other_words_arguments_or_reasoning_do() -> None:
    digests = {
        digest_conversation([message])
        for message in (
            said("a"),
            asked("a"),
            said("b"),
            said("a", called("f")),
            said("a", called("f", a=1)),
            Message(role="assistant", content="a", reasoning="hm"),
        )
    }

    assert len(digests) == 6


def test_text_in_blocks_is_the_same_text_and_an_image_is_not() -> None:
    blocks = Message.model_validate({"role": "user", "content": [{"type": "text", "text": "a"}]})
    image = Message.model_validate({"role": "user", "content": [{"type": "image", "url": "a"}]})

    assert digest_conversation([blocks]) == digest_conversation([asked("a")])
    assert digest_conversation([image]) != digest_conversation([asked("a")])


def test_the_first_value_stays_also_on_disk() -> None:
    seen = DigestTable(in_memory=10)

    for number in range(100):
        assert seen.is_new(digest_json(number))

    assert not any(seen.is_new(digest_json(number)) for number in range(100))
    assert seen.first(digest_json("x"), "one") == "one"
    assert seen.first(digest_json("x"), "two") == "one"
    assert seen.get(digest_json("y")) is None
