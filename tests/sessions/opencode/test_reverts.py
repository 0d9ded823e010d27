"""What the user has undone."""

from assay.sessions.opencode.reverts import split_reverted
from opencode_archives import agent, session, text, user

MESSAGES = (user(text("a")), agent(text("b"), text("c")), user(text("d")))


def test_everything_from_the_reverted_message_on_is_undone() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_1"})

    kept, reverted = split_reverted(made)

    assert kept == made.messages[:1]
    assert reverted == ["msg_1", "msg_2"]


def test_a_message_may_be_undone_from_a_part_on() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_1", "partID": "prt_1_2"})

    kept, reverted = split_reverted(made)

    assert [part.get("text") for part in kept[1].parts] == [None, "b"]
    assert reverted == ["msg_1", "msg_2"]


def test_the_place_decides_and_not_the_id() -> None:
    made = session(user(text("a"), id="msg_9"), user(text("b"), id="msg_1"), user(text("c")))
    made.info["revert"] = {"messageID": "msg_1"}

    kept, _ = split_reverted(made)

    assert [each.info["id"] for each in kept] == ["msg_9"]


def test_a_revert_to_a_message_that_is_gone_undoes_nothing() -> None:
    made = session(*MESSAGES, revert={"messageID": "msg_x"})

    assert split_reverted(made) == (made.messages, [])
