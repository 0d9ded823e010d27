"""Items of Codex as messages, one oddity at a time."""

from typing import Any

import pytest

from assay.sessions import SampleOptions
from assay.sessions.codex_conversation import CodexConversation
from assay.sessions.transcripts import Conversation
from assay.types import Status


def talk(*records: dict[str, Any]) -> Conversation:
    reader = CodexConversation(
        options=SampleOptions(), info={"model_provider": "openai"}, children=[]
    )
    for record in records:
        reader.take(record)
    return reader.finish()


def item(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **payload}}


def event(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": "event_msg", "payload": {"type": kind, **payload}}


def says(role: str, text: str) -> dict[str, Any]:
    return item("message", role=role, content=[{"type": "input_text", "text": text}])


def call(call_id: str, arguments: str = "{}") -> dict[str, Any]:
    return item("function_call", name="shell", arguments=arguments, call_id=call_id)


def test_items_of_one_answer_are_one_message() -> None:
    found = talk(says("user", "Hi"), says("assistant", "I look."), call("1"), call("2"))

    assert [message.role for message in found.messages] == ["user", "assistant"]
    assert [each.id for each in found.messages[1].tool_calls] == ["1", "2"]


def test_arguments_that_are_no_json_are_kept_as_the_model_wrote_them() -> None:
    made = talk(call("1", '{"cmd": ')).messages[0].tool_calls[0]

    assert made.malformed
    assert made.raw_arguments == '{"cmd": '


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_images_and_texts_of_a_message_keep_their_order(role: str) -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    before, after = ({"type": "input_text", "text": text} for text in ("Before:", "After:"))

    (message,) = talk(item("message", role=role, content=[before, image, after, image])).messages

    blocks = message.content
    assert isinstance(blocks, tuple)
    assert [block.type for block in blocks] == ["text", "image_url", "text", "image_url"]
    assert message.text.index("Before:") < message.text.index("After:")


def test_outputs_may_be_objects_or_lists() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk="}
    found = talk(
        call("1"),
        call("2"),
        item("function_call_output", call_id="1", output={"content": "no", "success": False}),
        item("function_call_output", call_id="2", output=[image]),
    )

    first, second = found.messages[1:]
    assert (first.text, (first.details or {})["failed"]) == ("no", True)
    assert isinstance(second.content, tuple)
    assert second.content[0].type == "image_url"


def test_reasoning_that_only_the_provider_can_read_is_kept_beside() -> None:
    hidden = item("reasoning", summary=[], encrypted_content="gAAA")

    message = talk(hidden, says("assistant", "Done.")).messages[0]

    assert message.reasoning is None
    assert (message.details or {})["reasoning_items"][0]["encrypted_content"] == "gAAA"


def test_an_aborted_turn_makes_an_aborted_session_until_the_user_goes_on() -> None:
    stopped = talk(says("user", "Go"), says("assistant", "I go"), event("turn_aborted"))
    gone_on = talk(
        says("user", "Go"),
        event("turn_aborted"),
        says("user", "<turn_aborted>stopped</turn_aborted>"),
        says("user", "Again"),
        says("assistant", "Done."),
    )

    assert stopped.to_sample("s", {}, {}).status is Status.ABORTED
    assert gone_on.to_sample("s", {}, {}).status is Status.COMPLETED


def test_an_error_of_the_endpoint_is_a_call_without_an_answer() -> None:
    found = talk(says("user", "Go"), event("error", message="quota exceeded"))

    assert found.calls[0].error == "quota exceeded"
    assert found.to_sample("s", {}, {}).status is Status.ABORTED


def test_a_count_without_numbers_is_no_measurement() -> None:
    found = talk(says("assistant", "Hi"), event("token_count", info=None))

    assert found.calls[0].usage is None


def test_rolling_back_more_turns_than_there_are_takes_back_all() -> None:
    found = talk(
        says("user", "Hi"), says("assistant", "Hi."), event("thread_rolled_back", num_turns=9)
    )

    assert found.messages == []
    assert len(found.reverted) == 2


def test_a_roll_back_without_a_number_takes_back_nothing() -> None:
    assert len(talk(says("user", "Hi"), event("thread_rolled_back")).messages) == 1


def test_a_second_session_meta_is_kept_as_it_is() -> None:
    meta = {"type": "session_meta", "payload": {"id": "s"}}

    assert talk(meta, meta).records == [meta]


def test_a_shell_call_of_the_provider_is_a_tool_call() -> None:
    action = {"type": "exec", "command": ["ls"]}

    made = talk(item("local_shell_call", call_id="1", action=action)).messages[0].tool_calls[0]

    assert (made.name, made.arguments) == ("local_shell", action)


def completed(kind: str, **values: Any) -> dict[str, Any]:
    return event("item_completed", item={"type": kind, "id": "1", **values})


def output(text: Any, **more: Any) -> dict[str, Any]:
    return item("function_call_output", call_id="1", output=text, **more)


def outcome(*records: dict[str, Any]) -> tuple[bool, bool, Any]:
    found = talk(says("user", "Go"), call("1"), *records)
    answer = next(message for message in found.messages if message.role == "tool")
    details = answer.details or {}
    assert details["status"] == ("error" if details["failed"] else "completed")
    return details["failed"], details["is_error"], details.get("exit_code")


@pytest.mark.parametrize(
    "text",
    [
        "unsupported call: no_such_tool",
        "failed to parse function arguments: EOF while parsing a string",
        "apply_patch verification failed: Failed to find expected lines in a.py",
        "aborted by user after 2.1s",
        "Wall time: 3.0 seconds\naborted by user",
    ],
)
def test_a_call_that_codex_did_not_run_to_its_end_failed(text: str) -> None:
    assert outcome(output(text)) == (True, True, None)


@pytest.mark.parametrize(
    "text",
    ["The user said: aborted by user", "fine", "aborted flights: 3", '{"a": ' * 5000],
    ids=lambda text: text[:8],
)
def test_other_texts_are_no_failures(text: str) -> None:
    assert outcome(output(text)) == (False, False, None)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (completed("McpToolCall", status="failed", result={"isError": True}), (True, True, None)),
        (
            completed("McpToolCall", status="completed", result={"isError": True}),
            (True, True, None),
        ),
        (completed("McpToolCall", status="completed", result={}), (False, False, None)),
        (completed("CommandExecution", status="failed", exit_code=3), (False, True, 3)),
        (completed("CommandExecution", status="completed", exit_code=0), (False, False, 0)),
        (completed("CommandExecution", status="failed", exit_code=None), (True, True, None)),
        (completed("CommandExecution", status="declined", exit_code=-1), (True, True, None)),
        (completed("CommandExecution", status="failed", exit_code=-1), (True, True, None)),
        (completed("FileChange", status="failed"), (True, True, None)),
        (completed("FileChange", status="declined"), (True, True, None)),
        (completed("DynamicToolCall", status="completed", success=False), (True, True, None)),
        (completed("CollabAgentToolCall", status="failed"), (True, True, None)),
        (event("exec_command_end", call_id="1", exit_code=2), (False, True, 2)),
        (event("patch_apply_end", call_id="1", success=False), (True, True, None)),
        (event("mcp_tool_call_end", call_id="1", result={"Err": "gone"}), (True, True, None)),
        (event("mcp_tool_call_end", call_id="1", result={"Ok": {}}), (False, False, None)),
    ],
)
def test_what_codex_recorded_of_a_call_overrules_its_text(
    record: dict[str, Any], expected: tuple[bool, bool, Any]
) -> None:
    for text in ("order 13 is in Bremen", "aborted by user", "Exit code: 0"):
        assert outcome(record, output(text)) == expected
        assert outcome(output(text), record) == expected


def test_a_call_that_still_runs_is_not_settled() -> None:
    assert outcome(completed("McpToolCall", status="inProgress"), output("fine")) == (
        *(False, False, None),
    )


def test_the_outcome_of_an_earlier_call_with_the_same_id_is_forgotten() -> None:
    found = talk(
        *(call("1"), completed("FileChange", status="failed"), output("no")),
        *(call("1"), output("yes")),
    )

    assert [(m.details or {})["failed"] for m in found.messages if m.role == "tool"] == [
        *(True, False),
    ]


def test_the_namespace_is_part_of_a_tool_s_name() -> None:
    def named(**values: Any) -> str:
        made = item("function_call", arguments="{}", call_id="1", **values)
        answered = talk(made, output("fine")).messages
        assert answered[1].name == answered[0].tool_calls[0].name
        return answered[0].tool_calls[0].name

    assert named(name="lookup", namespace="mcp__shop") == "mcp__shop__lookup"
    assert named(name="lookup", namespace="mcp__shop__") == "mcp__shop__lookup"
    assert named(name="lookup", namespace="functions") == "lookup"
    assert named(name="lookup", namespace=None) == "lookup"


def test_a_search_for_tools_is_a_call_with_its_answer_and_its_tokens() -> None:
    query = {"query": "orders", "limit": 5}
    found = talk(
        item("tool_search_call", call_id="1", arguments=query, execution="client"),
        {"type": "token_usage_record", "payload": {"usage": {"input_tokens": 9}}},
        item("tool_search_output", call_id="1", status="completed", tools=[{"name": "mcp__shop"}]),
    )

    asked, answered = found.messages
    assert (asked.tool_calls[0].name, asked.tool_calls[0].arguments) == ("tool_search", query)
    assert (answered.name, answered.text) == ("tool_search", '[{"name": "mcp__shop"}]')
    assert [made.usage and made.usage.input_tokens for made in found.calls] == [9]


def test_a_refused_request_is_a_call_with_an_error() -> None:
    refused = {"message": "context too long", "codex_error_info": "other"}
    found = talk(says("user", "Go"), event("task_complete", error=refused))

    sample = found.to_sample("s", {}, {})
    assert found.calls[0].error == "context too long"
    assert sample.status is Status.ABORTED
    assert sample.trajectory is not None
    assert sample.trajectory.termination_reason == "context too long"


def test_an_error_that_two_events_report_is_one_error() -> None:
    found = talk(
        says("user", "Go"),
        event("error", message="quota exceeded"),
        event("task_complete", error={"message": "quota exceeded"}),
    )

    assert len(found.calls) == len(found.messages) - 1 == 1


def test_a_turn_that_went_well_has_no_error() -> None:
    found = talk(says("user", "Go"), says("assistant", "Done."), event("task_complete", error=None))

    assert [made.error for made in found.calls] == [None]


def test_the_reply_to_a_compaction_is_no_answer_but_its_tokens_count() -> None:
    summary = says("assistant", "The user wants it blue.")
    usage = {"type": "token_usage_record", "payload": {"usage": {"input_tokens": 7}}}
    compacted = {"type": "compacted", "payload": {"message": "cut"}}

    for records in (
        [{**summary, "metadata": {"compaction_output": True}}, usage, compacted],
        [summary, usage, {**compacted, "payload": {"message": "So far: The user wants it blue."}}],
    ):
        found = talk(says("user", "Go"), says("assistant", "Done."), usage, *records)

        assert [message.text for message in found.messages] == ["Go", "Done."]
        assert [each["why"] for each in found.skipped] == ["compaction reply", "compaction summary"]
        assert found.skipped[0]["parts"][0]["content"] == "The user wants it blue."
        assert [(made.message_index, made.purpose) for made in found.calls] == [
            *((1, "turn"), (None, "summary")),
        ]
        assert all(made.usage for made in found.calls)


def test_an_answer_before_a_compaction_elsewhere_stays() -> None:
    found = talk(
        says("user", "Go"),
        says("assistant", "Done."),
        {"type": "compacted", "payload": {"message": ""}},
    )

    assert [message.text for message in found.messages] == ["Go", "Done."]


def test_the_origin_of_a_message_overrules_its_look() -> None:
    def of(kind: str, text: str) -> dict[str, Any]:
        record = says("user", text)
        origin = {"content_item_kinds": [kind]}
        record["payload"]["internal_chat_message_metadata_passthrough"] = origin
        return record

    found = talk(
        of("user.text", "<environment_context> is what I paste"), of("plugins.list", "Use these.")
    )

    assert [message.text for message in found.messages] == ["<environment_context> is what I paste"]
    assert [each["why"] for each in found.skipped] == ["injected by the program"]


def test_turns_rolled_back_at_different_times_are_listed_in_that_order() -> None:
    turns = [[says("user", f"{n}?"), says("assistant", f"{n}.")] for n in range(4)]
    back = [event("thread_rolled_back", num_turns=n) for n in (1, 2)]

    found = talk(*turns[0], *turns[1], back[0], *turns[2], *turns[3], back[1])

    assert [message.text for message in found.messages] == ["0?", "0."]
    assert [each["content"] for each in found.reverted] == ["1?", "1.", "2?", "2.", "3?", "3."]


def test_records_of_unknown_kinds_are_counted_by_kind() -> None:
    found = talk(
        {"type": "brand_new", "payload": {}},
        {"type": "unknown", "payload": {"prompt": "a dataset"}},
        item("hologram"),
        item("message", role="user", content=[{"type": "smell"}, {"type": "input_text"}]),
        event("foo_bar"),
        event("foo_bar"),
        event("item_completed", item={"type": "Levitation"}),
        event("x" * 500),
    )

    assert found.unknown_kinds == {
        "brand_new": 1,
        "a line without type and payload": 1,
        "response_item/hologram": 1,
        "content/smell": 1,
        "event_msg/foo_bar": 2,
        "item_completed/Levitation": 1,
        f"event_msg/{'x' * 80}": 1,
    }
    assert found.to_sample("s", {}, {}).metadata["unknown_records"] == dict(found.unknown_kinds)


@pytest.mark.parametrize("error", ["no credits left", {"message": "no credits left"}])
def test_an_error_that_ends_a_turn_is_that_of_its_model_call(error: Any) -> None:
    found = talk(says("user", "Hi"), event("task_complete", error=error))

    assert [call.error for call in found.calls] == ["no credits left"]
    assert (found.messages[-1].details or {})["error"] == error


MANY = 20_000
"""Records of a small file, with which quadratic work takes minutes."""


def test_very_many_turns_are_taken_back_one_by_one() -> None:
    turn = [says("user", "Hi"), says("assistant", "Hello")]
    undo = event("thread_rolled_back", num_turns=1)

    found = talk(*turn * MANY, *[undo] * (MANY - 1), *[event("thread_rolled_back")] * MANY)

    assert [message.text for message in found.messages] == ["Hi", "Hello"]
    assert len(found.calls) == 1
    assert len(found.reverted) == 2 * (MANY - 1)


def test_very_many_turns_can_be_taken_back_where_none_is_the_users() -> None:
    undo = event("thread_rolled_back", num_turns=1)

    found = talk(*[each for _ in range(MANY) for each in (says("assistant", "Hello"), undo)])

    assert len(found.messages) == MANY


def test_very_many_compactions_take_back_their_own_reply_only() -> None:
    found = talk(
        *(
            record
            for number in range(MANY)
            for record in (
                says("user", "Hi"),
                says("assistant", f"Summary {number}"),
                {"type": "compacted", "payload": {"message": f"Summary {number}"}},
            )
        )
    )

    assert {message.role for message in found.messages} == {"user"}
    assert {each.message_index for each in found.calls} == {None}
    assert found.compactions == len(found.calls) == MANY


def test_counts_after_very_many_errors_are_of_the_last_answer() -> None:
    errors = [event("error", message=f"refused {number}") for number in range(MANY)]
    counts = [
        event("token_count", info={"total_token_usage": n, "last_token_usage": {"input_tokens": n}})
        for n in range(1, MANY)
    ]

    found = talk(says("user", "Hi"), says("assistant", "Hello"), *errors, *counts)

    assert found.calls[0].usage is not None
    assert found.calls[0].usage.input_tokens == 1
    assert all(each.usage is None for each in found.calls[1:])


def test_an_output_names_one_of_very_many_subagents() -> None:
    children = [f"{number:08x}-0000-7000-8000-000000000000" for number in range(MANY)]
    reader = CodexConversation(options=SampleOptions(), info={}, children=children)
    for number, child in enumerate(children):
        reader.take(call(str(number)))
        output = "word " * 40 + f"started thread-{child}"
        reader.take(item("function_call_output", call_id=str(number), output=output))

    answers = [each for each in reader.finish().messages if each.role == "tool"]

    assert [(each.details or {}).get("subagent") for each in answers] == children
