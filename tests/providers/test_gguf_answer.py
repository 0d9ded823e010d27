"""Answers of llama.cpp, in parts and as a whole."""

from typing import Any

import pytest

from assay.providers.attempt_errors import AttemptError
from assay.providers.gguf_answer import assemble_answer


def part(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_parts_are_put_together() -> None:
    answer = assemble_answer(
        [
            part(role="assistant", content=None),
            part(reasoning_content="h"),
            part(reasoning_content="m"),
            part(content="He"),
            part(content="llo"),
            {**part("stop"), "__verbose": {"prompt": "<user>", "tokens": []}},
            {"choices": [], "usage": {"prompt_tokens": 3}},
        ]
    )

    assert (answer.content, answer.reasoning, answer.finish_reason) == ("Hello", "hm", "stop")
    assert (answer.prompt, answer.usage) == ("<user>", {"prompt_tokens": 3})
    assert (answer.ids, answer.logprobs) == (None, None)


def test_the_pieces_of_calls_are_put_together() -> None:
    def piece(index: int, arguments: str, **more: Any) -> dict[str, Any]:
        function = {"arguments": arguments, **more}
        return part(tool_calls=[{"index": index, "id": more.get("name"), "function": function}])

    answer = assemble_answer(
        [
            piece(0, "", name="add"),
            piece(0, '{"a":'),
            piece(0, "1}"),
            piece(1, "{}", name="sub"),
            part("tool_calls"),
        ]
    )

    assert [call["function"] for call in answer.calls] == [
        {"name": "add", "arguments": '{"a":1}'},
        {"name": "sub", "arguments": "{}"},
    ]
    assert [call["id"] for call in answer.calls] == ["add", "sub"]


def test_a_whole_answer_has_its_ids_and_logprobs() -> None:
    message = {"role": "assistant", "content": "Hi"}
    logprobs = {"content": [{"id": 4, "logprob": -0.5}, {"id": 2, "logprob": -0.1}]}
    choice = {"message": message, "finish_reason": "stop", "logprobs": logprobs}

    answer = assemble_answer([{"choices": [choice], "__verbose": {"tokens": [4, 2]}}])

    assert (answer.content, answer.ids, answer.logprobs) == ("Hi", [4, 2], [-0.5, -0.1])


def test_an_error_is_a_fault_of_the_request() -> None:
    error = {"code": 400, "message": "too long", "type": "exceed_context_size_error"}

    with pytest.raises(AttemptError, match="too long") as caught:
        assemble_answer([{"error": error}])
    assert caught.value.permanent
    assert "extra_params['context']" in str(caught.value.hint)


def test_an_answer_without_an_end_is_no_answer() -> None:
    with pytest.raises(AttemptError, match="without a finish reason"):
        assemble_answer([part(content="He")])


@pytest.mark.parametrize(
    ("finish", "usage", "full"),
    [
        ("length", {"completion_tokens": 7}, True),
        ("length", {"completion_tokens": 8}, False),
        ("stop", {"completion_tokens": 7}, False),
        ("length", {}, False),
    ],
)
def test_an_answer_that_is_cut_off_before_its_limit_fills_the_context(
    finish: str, usage: dict[str, int], full: bool
) -> None:
    answer = assemble_answer([{**part(finish, content="x"), "usage": usage}])

    assert answer.fills_context(8) is full
