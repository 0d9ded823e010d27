"""Which records lead to the end of a transcript."""

from typing import Any

from assay.sessions.claude_code_tree import Branches, drop_invalid_ids, message_of, read_message_id


def record(uuid: str, parent: str | None, kind: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": kind, "uuid": uuid, "parentUuid": parent, **more}


def kept(*records: dict[str, Any]) -> list[str]:
    return [each["uuid"] for each in Branches(list(records)).kept]


def test_the_branch_that_leads_to_the_last_record_is_kept() -> None:
    records = [record("a", None), record("b", "a"), record("c", "a"), record("d", "c")]

    assert kept(*records) == ["a", "c", "d"]
    assert [each["uuid"] for each in Branches(records).abandoned] == ["b"]


def test_the_way_leads_through_records_that_are_no_messages() -> None:
    assert kept(record("a", None), record("p", "a", "progress"), record("b", "p")) == [
        "a",
        "p",
        "b",
    ]


def test_results_of_calls_that_ran_at_the_same_time_are_all_kept() -> None:
    def call(uuid: str, parent: str, call_id: str) -> dict[str, Any]:
        content = [{"type": "tool_use", "id": call_id}]
        return record(uuid, parent, "assistant", message={"id": "m", "content": content})

    def result(uuid: str, parent: str, call_id: str) -> dict[str, Any]:
        content = [{"type": "tool_result", "tool_use_id": call_id}]
        return record(uuid, parent, message={"content": content})

    records = [
        record("u", None),
        call("a1", "u", "c1"),
        call("a2", "a1", "c2"),
        result("r1", "a1", "c1"),
        result("r2", "a2", "c2"),
        record("end", "r2", "assistant", message={"id": "n", "content": []}),
    ]

    assert kept(*records) == ["u", "a1", "a2", "r1", "r2", "end"]


def test_a_compaction_does_not_cut_off_what_was_before_it() -> None:
    boundary = record("c", None, "system", subtype="compact_boundary", logicalParentUuid="a")

    assert kept(record("a", None), boundary, record("b", "c")) == ["a", "c", "b"]


def test_a_parent_that_is_gone_does_not_cut_off_what_was_before_it() -> None:
    assert kept(record("a", None), record("c", "lost"), record("d", "c")) == ["a", "c", "d"]


def test_a_record_that_is_there_twice_counts_once() -> None:
    assert kept(record("a", None), record("a", None), record("b", "a")) == ["a", "b"]


def test_a_ring_of_records_ends() -> None:
    assert kept(record("a", "b"), record("b", "a")) == ["a", "b"]


def queued(uuid: str, parent: str) -> dict[str, Any]:
    return record(uuid, parent, "attachment", attachment={"type": "queued_command"})


def test_what_was_typed_while_the_agent_worked_is_gone_back_on_like_a_turn() -> None:
    assert kept(record("a", None), queued("q", "a"), record("b", "a")) == ["a", "b"]
    assert kept(record("a", None), record("b", "a"), queued("q", "a")) == ["a", "q"]


def test_many_answers_are_told_apart_in_one_pass() -> None:
    # Enough of them that work on all of them for each of them would not end.
    names = [str(number) for number in range(60_000)]
    parents = [None, *names[:-1]]
    records = [
        record(name, parent, "assistant", message={"id": name, "content": []})
        for name, parent in zip(names, parents, strict=True)
    ]

    assert len(Branches(records).kept) == len(names)


def test_records_without_a_message_have_none() -> None:
    assert message_of({"message": "text"}) == {}
    assert read_message_id({"message": {"id": ""}}) is None
    assert Branches([]).kept == []


def test_a_name_that_is_no_string_names_nothing() -> None:
    odd = {"type": "user", "uuid": {"a": 1}, "parentUuid": None, "agentId": "x"}

    nameless = drop_invalid_ids(odd)

    assert nameless == {**odd, "uuid": None}
    assert Branches([nameless]).kept == [nameless]
