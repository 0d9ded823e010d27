"""Messages for one worker: only it can read them, and no other message is accepted."""

import pytest

pytest.importorskip("cryptography", reason="needs the extra `ray`")

from cryptography.exceptions import InvalidTag

from assay.runner.engines.sealed_message import MessageReader, seal_message

_SECRET = b"the key sk-of-a-test"


def test_only_the_reader_can_read_a_message() -> None:
    reader, other = MessageReader(), MessageReader()

    sealed = seal_message(_SECRET, reader.public)

    assert reader.unseal(sealed) == _SECRET
    assert b"sk-of-a-test" not in sealed
    with pytest.raises(InvalidTag):
        other.unseal(sealed)


def test_a_changed_message_is_refused() -> None:
    reader = MessageReader()
    sealed = seal_message(_SECRET, reader.public)

    with pytest.raises(InvalidTag):
        reader.unseal(sealed[:-1] + bytes([sealed[-1] ^ 1]))


def test_no_two_messages_are_equal() -> None:
    reader = MessageReader()

    assert seal_message(_SECRET, reader.public) != seal_message(_SECRET, reader.public)
