"""Trees of JSON files: every layout, in the order of time, with broken files named."""

import json
from pathlib import Path

import pytest

from assay.errors import BadRow
from assay.sessions.opencode.trees import GlobalTree, ProjectTrees
from assay.sessions.session_choice import SessionMeta, UnreadableSession
from opencode_archives import RECORDED, agent, exported, recorded, session, text, user, write_tree


def project_trees(version: str) -> ProjectTrees:
    root = RECORDED / version
    return ProjectTrees(root, sorted(root.glob("project/*/storage")))


def test_every_recorded_session_of_the_global_tree_equals_its_export() -> None:
    tree = GlobalTree(RECORDED / "1.1.65" / "storage")
    exports = exported("1.1.65")

    heads = [head for head in tree.iterate_meta() if isinstance(head, SessionMeta)]

    assert {head.id for head in heads} == set(exports)
    for head in heads:
        read = tree.load(head.id)
        messages = [{"info": message.info, "parts": message.parts} for message in read.messages]
        assert messages == exports[head.id]["messages"]
        assert read.info == exports[head.id]["info"]


def test_the_todo_list_is_read_beside_the_session() -> None:
    tree = GlobalTree(RECORDED / "1.1.65" / "storage")

    lists = [
        tree.load(head.id).todo for head in tree.iterate_meta() if isinstance(head, SessionMeta)
    ]

    assert sum(bool(each) for each in lists) == 3


def test_parts_apart_from_messages_are_joined_in_the_order_of_their_ids() -> None:
    tree = project_trees("0.5.29")

    heads = [head for head in tree.iterate_meta() if isinstance(head, SessionMeta)]
    parts = [part for head in heads for each in tree.load(head.id).messages for part in each.parts]

    assert len(heads) == 7
    assert len(parts) == 115
    assert {head.project for head in heads} == {"home-dev-projects"}
    assert sum(len(tree.children_of(head.id)) for head in heads) == 1


def test_the_oldest_layout_is_read_as_the_later_ones() -> None:
    tree = project_trees("0.1.174")

    (head,) = tree.iterate_meta()
    assert isinstance(head, SessionMeta)
    read = tree.load(head.id)

    assert [message.info["role"] for message in read.messages] == ["user", "assistant"] * 3
    calls = [p for m in read.messages for p in m.parts if p["type"] == "tool"]
    assert [call["state"]["status"] for call in calls].count("error") == 5
    assert len(calls) == 10


def test_messages_are_ordered_by_time_though_ids_wrapped(tmp_path: Path) -> None:
    made = session(user(text("before"), id="msg_fff"), agent(text("after"), id="msg_000"))
    tree = GlobalTree(write_tree(tmp_path, [made]) / "storage")

    assert tree.load("ses_1").messages == made.messages


def test_a_broken_description_is_named_and_the_rest_is_read(tmp_path: Path) -> None:
    storage = recorded("1.1.65", tmp_path) / "storage"
    broken = sorted(storage.glob("session/*/*.json"))[0]
    broken.write_text("{")

    found = list(GlobalTree(storage).iterate_meta())

    assert [each.session_id for each in found if isinstance(each, UnreadableSession)] == [
        broken.stem
    ]
    assert sum(isinstance(each, SessionMeta) for each in found) == 8


@pytest.mark.parametrize("content", ["", "{", "null", "[1]"])
def test_a_broken_part_makes_its_session_unreadable(content: str, tmp_path: Path) -> None:
    root = write_tree(tmp_path, [session(user(text("hi")))])
    (root / "storage/part/msg_0/prt_0_0.json").write_text(content)

    with pytest.raises(BadRow, match=r"prt_0_0.json: the (text|JSON value) is "):
        GlobalTree(root / "storage").load("ses_1")


def test_half_a_character_is_replaced_rather_than_refused(tmp_path: Path) -> None:
    root = write_tree(tmp_path, [session(user(text("cut \ud83d")))])

    (message,) = GlobalTree(root / "storage").load("ses_1").messages

    assert message.parts[0]["text"] == "cut \ufffd"


def test_a_session_stored_under_two_projects_is_read_once(tmp_path: Path) -> None:
    made = session(user(text("hi")))
    root = write_tree(tmp_path, [made, session(user(text("hi")), projectID="other")])
    tree = GlobalTree(root / "storage")

    assert len(list(tree.iterate_meta())) == 1
    assert "exists in another folder too" in tree.notes[0]


def test_what_a_file_says_is_never_a_path(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "prt_1.json").write_text('{"type": "text", "text": "secret"}')
    made = session(user(text("hi")))
    made.messages[0].info["id"] = "msg_0"
    root = write_tree(tmp_path / "data", [made])
    path = root / "storage/message/ses_1/msg_0.json"
    path.write_text(json.dumps({**made.messages[0].info, "id": "../../../secret"}))

    (message,) = GlobalTree(root / "storage").load("ses_1").messages

    assert [part["text"] for part in message.parts] == ["hi"]


def test_a_session_that_is_not_there_is_reported() -> None:
    with pytest.raises(BadRow, match="session ses_x: the session does not exist"):
        GlobalTree(RECORDED / "1.1.65" / "storage").load("ses_x")
