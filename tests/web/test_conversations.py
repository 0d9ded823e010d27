"""Conversations: branches and subagents as a tree, with the reason of each."""

from assay.web.conversations import list_conversations
from make import asked, sample
from recorded_samples import branched, nested


def test_subagents_are_listed_below_those_that_started_them() -> None:
    found, left_out = list_conversations(nested(0))

    nodes = [each.node for each in found]
    assert [(node.name, node.depth, node.id) for node in nodes] == [
        ("main", 0, None),
        ("agent-1", 1, None),
        ("agent-0", 1, "agent-a"),
        ("agent-0-0", 2, "agent-b"),
    ]
    assert nodes[1].note == "the session of subagent 'lost' is not recorded"
    assert [node.origin for node in nodes[2:]] == [2, 2]
    assert [each.first_number for each in found[2:]] == [5, 9]
    assert left_out == 0


def test_branches_have_the_reason_of_their_fork() -> None:
    nodes = [each.node for each in list_conversations(branched(0))[0]]

    assert [(node.name, node.depth, node.reason, node.calls) for node in nodes] == [
        ("main", 0, "root", 1),
        ("branch-1", 1, "subagent", 1),
        ("branch-2", 2, "compaction", 1),
    ]
    assert (nodes[1].title, nodes[1].origin) == ("research", 2)
    assert nodes[2].note == "found by its tokens, other places are as likely"


def test_judges_number_the_messages_of_subagents_after_the_main_ones() -> None:
    found = list_conversations(branched(0))[0]

    numbered = [each for each in found if each.node.reason in ("root", "subagent")]
    assert [(each.node.id, each.first_number) for each in numbered] == [(None, 1), ("research", 3)]


def test_many_subagents_are_counted() -> None:
    many = sample(asked("a"), metadata={"subagents": [{"id": str(n)} for n in range(300)]})

    found, left_out = list_conversations(many)

    assert (len(found), left_out) == (200, 101)
