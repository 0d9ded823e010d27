"""The client of a GGUF file: what is asked of llama.cpp, and what is made of its answers."""

import asyncio
import struct
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jsonschema
import pytest

from assay.errors import ConfigError, EndpointError
from assay.providers import Client, Reply, check_endpoint, connect
from assay.providers.adapter import Attempt
from assay.providers.attempt_errors import AttemptError
from assay.providers.gguf import GgufAdapter
from assay.types import Endpoint, Message, ToolSpec
from gguf_weights import needs_weights
from make import answered, asked, called, said

ADD = ToolSpec(
    name="add",
    description="Adds two numbers.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
    },
)
Value = TypeVar("Value")


class Canned:
    """An engine that answers with what it is given, and keeps what it was asked."""

    def __init__(self, *parts: dict[str, Any]) -> None:
        self.body: dict[str, Any] = {}
        self._parts = list(parts)

    def chat(self, body: dict[str, Any], unwanted: Callable[[], bool]) -> list[dict[str, Any]]:
        self.body = body
        return self._parts


def whole(content: str, *, finish: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, **more.pop("message", {})}
    choice = {"message": message, "finish_reason": finish, **more.pop("choice", {})}
    return {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 2}, **more}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file that passes the check; it is never loaded."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    return path


def endpoint(file: Path | str, **fields: Any) -> Endpoint:
    return Endpoint(**{"provider": "local", "model": str(file), **fields})


def ask(
    speaker: GgufAdapter,
    engine: Canned,
    *messages: Message,
    tools: Sequence[ToolSpec] = (),
    seed: int | None = None,
) -> Reply:
    speaker._engine = engine  # type: ignore[assignment]  # stands in for llama.cpp
    request, lost = speaker.write(messages, tools, seed)
    answer = asyncio.run(speaker.send(request))
    return speaker.read(answer, Attempt(0.5, 1, seed, len(messages), lost))


def test_a_request_says_all_that_shapes_the_distribution(file: Path) -> None:
    speaker, engine = GgufAdapter(endpoint(file, stop=("END",))), Canned(whole("Hi"))

    reply = ask(speaker, engine, asked("hello"), seed=3)

    body = engine.body
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert (body["temperature"], body["top_p"], body["top_k"], body["min_p"]) == (1.0, 1.0, 0, 0.0)
    assert (body["repeat_penalty"], body["max_tokens"], body["stop"]) == (1.0, 512, ["END"])
    assert body["stream"] is True
    assert 0 <= body["seed"] < 2**32 - 1
    call = reply.call
    assert reply.message == Message(role="assistant", content="Hi")
    assert call.sampling["seed"] == 3
    assert call.usage is not None
    assert (call.usage.input_tokens, call.usage.output_tokens) == (7, 2)
    assert (call.model, call.finish_reason, call.message_index) == (str(file), "stop", 1)
    assert call.completion_ids is None


CHATML_WITH_TAGS = "{{ tools }}<tool_call>\\n<function=NAME>"


def with_template(file: Path, template: str) -> Path:
    """A header that holds a vocabulary and a chat template."""
    words = b"".join(_text(word) for word in ("a", "b"))
    vocabulary = _text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + words
    scores = _text("tokenizer.ggml.scores") + struct.pack("<IIQff", 9, 6, 2, 0.5, 0.5)
    number = _text("general.alignment") + struct.pack("<II", 4, 32)
    told = _text("tokenizer.chat_template") + struct.pack("<I", 8) + _text(template)
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 4)
    file.write_bytes(head + vocabulary + scores + number + told)
    return file


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def test_calls_that_llama_cpp_left_as_text_are_read_by_the_template_of_the_file(file: Path) -> None:
    speaker = GgufAdapter(endpoint(with_template(file, CHATML_WITH_TAGS)))
    text = (
        "Sure.\n<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n"
        "<parameter=b>\n2\n</parameter>\n</function>\n</tool_call>"
    )

    reply = ask(speaker, Canned(whole(text)), asked("1 + 2?"), tools=[ADD])

    (call,) = reply.message.tool_calls
    assert (call.name, call.arguments) == ("add", {"a": 1, "b": 2})
    assert reply.message.content == "Sure."
    assert reply.call.finish_reason == "tool_calls"


def test_reasoning_that_the_prompt_opened_goes_to_reasoning(file: Path) -> None:
    speaker = GgufAdapter(endpoint(with_template(file, "<think>")))
    said = whole("hm\n</think>\n\nYes", __verbose={"prompt": "what<think>\n"})

    reply = ask(speaker, Canned(said), asked("what"))

    assert (reply.message.reasoning, reply.message.content) == ("hm", "Yes")


@pytest.mark.parametrize(
    ("template", "problem"), [("{{ tools }}", "is unknown"), ("", "does not render tools")]
)
def test_a_file_with_an_unknown_template_cannot_be_offered_tools(
    file: Path, template: str, problem: str
) -> None:
    with_template(file, template)

    with pytest.raises(ConfigError, match=problem) as caught:
        asyncio.run(GgufAdapter(endpoint(file)).check_tools([ADD]))

    assert "'tool_calls': 'schema'" in str(caught.value.hint)
    for extra in ({"tool_calls": "schema"}, {"tool_format": "hermes"}):
        asyncio.run(GgufAdapter(endpoint(file, extra_params=extra)).check_tools([ADD]))


def test_a_seed_is_another_one_on_the_next_turn(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file))

    seeds = [
        speaker.write(messages, (), 3)[0].body["seed"]
        for messages in ([asked("a")], [asked("a")], [asked("a"), said("b"), asked("c")])
    ]

    assert seeds[0] == seeds[1] != seeds[2]


def test_forced_calls_are_told_in_words_and_read_from_the_text(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file, extra_params={"tool_calls": "schema"}))
    engine = Canned(whole('{"name": "add", "arguments": {"a": 1, "b": 2}}'))

    reply = ask(speaker, engine, asked("1 + 2?"), answered("no"), tools=[ADD])

    assert "tools" not in engine.body
    assert engine.body["call_schema"]["anyOf"][0]["properties"]["name"] == {"const": "add"}
    assert "- add(a: integer, b: integer): Adds" in engine.body["messages"][0]["content"]
    (call,) = reply.message.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_2_0", "add", {"a": 1, "b": 2})
    assert reply.message.content == ""
    assert reply.call.finish_reason == "tool_calls"
    assert reply.call.sampling["tool_calls"] == "schema"


def test_forced_calls_at_first_leave_the_answer_to_a_result_free(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file, extra_params={"tool_calls": "schema_first"}))
    happened = [asked("1 + 2?"), said("", called("add", a=1, b=2)), answered("3")]

    first = speaker.write(happened[:1], [ADD], None)[0]
    reply = ask(speaker, Canned(whole("It is 3.")), *happened, tools=[ADD])

    assert "call_schema" in first.body
    assert "call_schema" not in speaker.write(happened, [ADD], None)[0].body
    assert reply.message == Message(role="assistant", content="It is 3.")


def test_a_forced_call_that_was_cut_short_is_what_the_model_said(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file, extra_params={"tool_calls": "schema"}))

    reply = ask(speaker, Canned(whole('{"name": "add', finish="length")), asked("x"), tools=[ADD])

    assert reply.message.tool_calls == ()
    assert reply.message.content == '{"name": "add'
    assert reply.call.finish_reason == "length"


def test_without_tools_nothing_is_forced(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file, extra_params={"tool_calls": "schema"}))

    request, _ = speaker.write([asked("x")], (), None)

    assert "call_schema" not in request.body
    assert request.body["messages"] == [{"role": "user", "content": "x"}]


def test_tools_are_given_to_the_template_and_missed_when_it_says_nothing_of_them(
    file: Path,
) -> None:
    wire = {"tool_calls": [{"id": "", "function": {"name": "add", "arguments": '{"a": 1}'}}]}
    heard = Canned(whole("", message=wire, __verbose={"prompt": "... add ..."}))
    unheard = Canned(whole("Hi", __verbose={"prompt": "<user>"}))
    speaker = GgufAdapter(endpoint(file))

    reply = ask(speaker, heard, asked("x"), tools=[ADD])
    missed = ask(speaker, unheard, asked("x"), tools=[ADD])

    assert heard.body["tools"][0]["function"]["name"] == "add"
    assert [call.id for call in reply.message.tool_calls] == ["call_1_0"]
    assert "lost" not in (reply.call.__pydantic_extra__ or {})
    lost = (missed.call.__pydantic_extra__ or {})["lost"]
    assert lost == {"the chat template has no place for tools; left out": 1}


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"temperature": 1.0}, True),
        ({"temperature": 0.0}, True),
        ({"temperature": 0.7}, False),
        ({"temperature": 1.0, "top_p": 0.9}, False),
        ({"temperature": 1.0, "extra_params": {"min_p": 0.1}}, False),
        ({"temperature": 1.0, "extra_params": {"response_format": {"type": "object"}}}, False),
    ],
)
def test_logprobs_are_kept_where_they_are_those_of_what_was_sampled(
    file: Path, fields: dict[str, Any], kept: bool
) -> None:
    extra = {**fields.pop("extra_params", {}), "logprobs": True}
    speaker = GgufAdapter(endpoint(file, extra_params=extra, **fields))
    entries = {"logprobs": {"content": [{"logprob": -0.5}, {"logprob": -0.1}]}}
    engine = Canned(whole("Hi", choice=entries, __verbose={"tokens": [4, 2]}))

    call = ask(speaker, engine, asked("x")).call

    assert "stream" not in engine.body
    assert call.completion_ids == (4, 2)
    assert call.logprobs == ((-0.5, -0.1) if kept else None)
    assert ("logprobs_left_out" in (call.__pydantic_extra__ or {})) == (not kept)


def test_logprobs_that_are_not_one_for_each_token_are_left_out(file: Path) -> None:
    speaker = GgufAdapter(endpoint(file, extra_params={"logprobs": True}))
    entries = {"logprobs": {"content": [{"logprob": -0.5}]}}

    call = ask(
        speaker, Canned(whole("é", choice=entries, __verbose={"tokens": [4, 2]})), asked("x")
    ).call

    assert call.completion_ids == (4, 2)
    assert call.logprobs is None
    assert (call.__pydantic_extra__ or {})["logprobs_left_out"] == "1 for 2 token ids"


def test_a_schema_alone_is_taken_as_the_form_of_the_reply(file: Path) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    spelled = {"type": "json_schema", "json_schema": {"schema": schema}}

    def form(given: dict[str, Any]) -> Any:
        speaker = GgufAdapter(endpoint(file, extra_params={"response_format": given}))
        return speaker.write([asked("x")], (), None)[0].body["response_format"]

    assert form(schema)["json_schema"]["schema"] == schema
    assert form(spelled) == spelled


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"tool_calls": "always"}, "tool_calls='always' is not one of 'schema', 'schema_first'"),
        ({"response_format": "json"}, "response_format is not an object"),
        ({"response_format": {}, "tool_calls": "schema"}, "cannot be combined"),
        ({"logprobs": 5}, "logprobs is not true or false"),
        ({"slots": 0}, "slots=0"),
        ({"contxt": 4096}, "'contxt', which this model does not support"),
    ],
)
def test_settings_without_a_meaning_are_refused(
    file: Path, extra: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        connect(endpoint(file, extra_params=extra))


def test_an_answer_that_is_no_message_is_a_fault(file: Path) -> None:
    wire = {"tool_calls": [{"function": {"name": None, "arguments": "{}"}}]}

    with pytest.raises(AttemptError):
        ask(GgufAdapter(endpoint(file)), Canned({"choices": [{"message": wire}]}), asked("x"))


def test_the_doctor_checks_a_file_without_loading_it(file: Path, tmp_path: Path) -> None:
    there = asyncio.run(check_endpoint(endpoint(file)))
    absent = asyncio.run(check_endpoint(endpoint(tmp_path / "absent.gguf")))

    assert (there.verdict, there.models) == ("answers", (str(file),))
    assert absent.verdict == "misconfigured"


def with_smollm2(work: Callable[[Client], Coroutine[Any, Any, Value]], **fields: Any) -> Value:
    """What `work` comes to with the embedded model, greedy and with one thread."""

    async def run() -> Value:
        async with connect(endpoint("smollm2-135m", **{"temperature": 0.0, **fields})) as client:
            return await asyncio.wait_for(work(client), 120)

    return asyncio.run(run())


@needs_weights
def test_the_embedded_model_answers_the_same_each_time_alone_or_among_others() -> None:
    async def several(client: Client) -> list[Reply]:
        return list(await asyncio.gather(*(client.complete([asked("Say hi.")]) for _ in range(3))))

    replies = with_smollm2(several, max_tokens=6)

    assert len({reply.message.text for reply in replies}) == 1
    assert replies[0].message.text
    assert replies[0].call.finish_reason == "length"
    assert replies[0].call.usage is not None
    assert replies[0].call.usage.output_tokens == 6


@needs_weights
def test_the_embedded_model_is_held_to_the_schema_of_a_call() -> None:
    async def calculate(client: Client) -> Reply:
        return await client.complete([asked("What is 20 + 22?")], tools=[ADD])

    reply = with_smollm2(calculate, max_tokens=60, extra_params={"tool_calls": "schema"})

    (call,) = reply.message.tool_calls
    assert call.name == "add"
    jsonschema.validate(call.arguments, ADD.parameters)


@needs_weights
def test_the_embedded_model_gives_the_ids_it_sampled_when_asked() -> None:
    async def hello(client: Client) -> Reply:
        return await client.complete([asked("Say hi.")])

    call = with_smollm2(hello, max_tokens=40, extra_params={"logprobs": True}).call

    assert call.usage is not None
    assert call.completion_ids is not None
    assert len(call.completion_ids) == call.usage.output_tokens
    assert call.logprobs is not None
    assert len(call.logprobs) == len(call.completion_ids)
    assert call.finish_reason == "stop"


@needs_weights
def test_a_call_that_is_given_up_frees_its_slot() -> None:
    extra = {"slots": 1, "context": 512}
    endless = endpoint("smollm2-135m", temperature=0.0, max_tokens=400, extra_params=extra)

    async def giving_up(client: Client) -> Reply:
        await client.complete([asked("Say hi.")])
        async with connect(endless) as patient:
            task = asyncio.create_task(patient.complete([asked("Count to a million in words.")]))
            while patient.limiter.in_flight == 0:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return await client.complete([asked("Say hi.")])

    reply = with_smollm2(giving_up, max_tokens=4, extra_params=extra)
    assert reply.call.finish_reason == "length"


@needs_weights
def test_a_prompt_longer_than_a_slot_is_refused_with_what_to_do() -> None:
    async def too_long(client: Client) -> Reply:
        return await client.complete([asked("x " * 400)])

    with pytest.raises(EndpointError, match="exceeds the available context") as caught:
        with_smollm2(too_long, extra_params={"slots": 1, "context": 256})
    assert "extra_params['context']" in str(caught.value.hint)
