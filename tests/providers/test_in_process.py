"""The client of a model in this process: exact tokens, turns, tool calls, batches, endings."""

import asyncio
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError
from assay.providers import ModelClient, Reply, connect
from assay.providers.attempt_errors import fills_context
from assay.providers.in_process import NEVER, LocalClient, LocalModel
from assay.types import Endpoint, Message, ModelCall, ToolSpec
from make import answered, asked
from saying import Saying
from tiny_models import FAMILIES, Family, chat_template, tiny_local, tiny_model, tiny_tokenizer
from trl_templates import template

LOOKUP = ToolSpec(name="lookup", description="Finds an order.")
CALL = '<tool_call>\n{"name": "lookup", "arguments": {"order": "A-7"}}\n</tool_call>'


@cache
def shared(family: Family) -> LocalModel:
    return tiny_local(family)


def endpoint(**fields: Any) -> Endpoint:
    return Endpoint(**{"provider": "local", "model": "tiny", "max_tokens": 12, **fields})


def ask(
    local: LocalModel,
    *messages: Message,
    tools: Sequence[ToolSpec] = (),
    seed: int | None = None,
    **fields: Any,
) -> Reply:
    client = LocalClient(local, endpoint(**fields))
    return asyncio.run(client.complete(messages, tools=tools, seed=seed))


def recomputed(local: LocalModel, call: ModelCall) -> list[float]:
    """The logprobs of a call's completion in one forward pass, at its temperature."""
    import torch

    prompt, ids = call.prompt_ids, call.completion_ids
    assert prompt is not None
    assert ids is not None
    with torch.no_grad():
        logits = local.model(torch.tensor([[*prompt, *ids]])).logits[0].float()
    logprobs = (logits[len(prompt) - 1 : -1] / call.sampling["temperature"]).log_softmax(-1)
    return [float(logprobs[step, token]) for step, token in enumerate(ids)]


async def talk(client: ModelClient, number: int, turns: int) -> list[ModelCall]:
    messages, calls = [asked(f"what is {number}")], []
    for _ in range(turns):
        reply = await client.complete(messages, seed=number)
        calls.append(reply.call)
        messages += [reply.message, asked("and the answer")]
    return calls


@pytest.mark.parametrize("conversations", [1, 8])
@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_logprobs_are_those_of_the_weights_on_every_turn(
    family: Family, conversations: int
) -> None:
    local = shared(family)
    client = LocalClient(local, endpoint(temperature=0.8))

    async def all_of_them() -> list[list[ModelCall]]:
        return await asyncio.gather(*(talk(client, number, 2) for number in range(conversations)))

    for calls in asyncio.run(all_of_them()):
        for call in calls:
            assert call.logprobs == pytest.approx(recomputed(local, call), abs=1e-4)


def test_a_call_records_what_was_read_sampled_and_spent() -> None:
    local = Saying("qwen2.5", "hello")
    local.weight_version = "step-3"

    reply = ask(local, asked("what"), seed=5, temperature=0.5, top_p=0.9, extra_params={"top_k": 7})

    call = reply.call
    assert reply.message == Message(role="assistant", content="hello")
    assert call.prompt_ids is not None
    assert local.tokenizer.decode(call.prompt_ids).endswith("<|im_start|>assistant\n")
    assert call.completion_ids == (*local.tokenizer.encode("hello"), local.stop_ids[0])
    assert call.logprobs == (-0.5, -0.5)
    assert call.sampling == {
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 7,
        "max_tokens": 12,
        "seed": 5,
    }
    assert (call.model, call.weight_version, call.finish_reason) == ("tiny", "step-3", "stop")
    assert call.usage is not None
    assert call.usage.input_tokens == len(call.prompt_ids)
    assert call.usage.output_tokens == 2
    assert call.message_index == 1
    assert call.latency_s is not None


def test_the_same_seed_gives_the_same_reply_and_no_two_turns_rhyme() -> None:
    local = Saying("qwen2.5", *["hello"] * 4)
    client = LocalClient(local, endpoint(seed=1))

    async def rollout() -> None:
        first = await client.complete([asked("what")])
        await client.complete([asked("what"), first.message, asked("what")])

    asyncio.run(rollout())
    asyncio.run(rollout())

    seeds = local.seeds_seen
    assert seeds[:2] == seeds[2:]
    assert seeds[0] != seeds[1]
    assert (
        ask(shared("plain"), asked("a"), seed=3).message
        == ask(shared("plain"), asked("a"), seed=3).message
    )


def test_calls_that_come_together_are_one_batch() -> None:
    local = Saying("qwen2.5", *["hello"] * 7)

    async def many() -> None:
        client, other = (LocalClient(local, endpoint(), max_batch=5) for _ in range(2))
        clients = [client, other, client, other, client, other, client]
        await asyncio.gather(*(each.complete([asked("what")]) for each in clients))

    asyncio.run(many())

    assert local.batches_seen == [5, 2]


def test_a_tool_call_in_the_text_becomes_one_that_can_be_answered() -> None:
    reply = ask(Saying("qwen2.5", f"I will look.\n{CALL}"), asked("where"), tools=[LOOKUP])

    (call,) = reply.message.tool_calls
    assert (call.name, call.arguments) == ("lookup", {"order": "A-7"})
    assert reply.message.content == "I will look."
    assert call.id is not None
    assert len(call.id) == 9
    assert call.id.isalnum()
    assert reply.call.finish_reason == "tool_calls"


def test_calls_are_read_only_where_tools_were_offered() -> None:
    reply = ask(Saying("qwen2.5", CALL), asked("where"))

    assert reply.message.tool_calls == ()
    assert reply.message.content == CALL


def test_special_tokens_are_no_part_of_what_is_said() -> None:
    tokenizer = tiny_tokenizer("mistral")
    ids = tokenizer.encode("yes[INST] no[TOOL_CALLS]oops", add_special_tokens=False)

    reply = ask(Saying("mistral", [*ids, tokenizer.eos_token_id]), asked("what"), tools=[LOOKUP])

    assert reply.message.content == "yes nooops"
    assert reply.call.completion_ids == (*ids, tokenizer.eos_token_id)


def test_mistral_calls_are_found_behind_their_special_token() -> None:
    text = '[TOOL_CALLS][{"name": "lookup", "arguments": {}}]'

    reply = ask(Saying("mistral", text), asked("where"), tools=[LOOKUP])

    assert [call.name for call in reply.message.tool_calls] == ["lookup"]
    assert reply.message.content == ""


def test_a_rollout_with_a_tool_is_one_run_of_tokens() -> None:
    local = Saying("qwen2.5", CALL, "Oslo")
    client = LocalClient(local, endpoint())

    async def rollout() -> tuple[ModelCall, ModelCall]:
        messages = [asked("where is A-7")]
        first = await client.complete(messages, tools=[LOOKUP])
        call_id = first.message.tool_calls[0].id
        assert call_id is not None
        messages += [first.message, answered("Oslo", call_id)]
        second = await client.complete(messages, tools=[LOOKUP])
        return first.call, second.call

    first, second = asyncio.run(rollout())

    assert first.prompt_ids is not None
    assert first.completion_ids is not None
    assert second.prompt_ids is not None
    before = first.prompt_ids + first.completion_ids
    assert second.prompt_ids[: len(before)] == before
    between = local.tokenizer.decode(second.prompt_ids[len(before) :])
    assert between == (
        "\n<|im_start|>user\n<tool_response>\nOslo\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_reasoning_is_kept_apart_where_the_template_knows_it() -> None:
    thought = "<think>\nhm\n</think>\n\nYes"

    reasoned = ask(Saying("qwen3", thought), asked("what"))
    unknown = ask(Saying("smollm2", thought), asked("what"))

    assert (reasoned.message.reasoning, reasoned.message.content) == ("hm", "Yes")
    assert (unknown.message.reasoning, unknown.message.content) == (None, thought)


@pytest.mark.parametrize("name", ["deepseek_r1_distill", "deepseekv3", "qwen3_5_think"])
def test_reasoning_that_the_prompt_opened_is_no_part_of_the_answer(name: str) -> None:
    local = Saying("qwen2.5", "2 + 2 is 4\n</think>\n\nIt is 4.", template=template(name))

    reply = ask(local, asked("2 + 2?"))

    assert (reply.message.reasoning, reply.message.content) == ("2 + 2 is 4", "It is 4.")


def test_reasoning_that_was_cut_short_is_not_an_answer() -> None:
    source = template("deepseek_r1_distill")
    local = Saying("qwen2.5", tiny_tokenizer("qwen2.5").encode("hello"), template=source)

    reply = ask(local, asked("2 + 2?"))

    assert reply.call.finish_reason == "length"
    assert (reply.message.reasoning, reply.message.content) == ("hello", "")


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (chat_template("qwen3"), "<think>\nhello"),
        (template("gemma4_v5"), "<|channel>thought\nhello"),
        (template("gptoss"), "<|channel|>analysis<|message|>hello"),
    ],
)
def test_reasoning_that_the_model_opened_and_was_cut_short_is_not_an_answer(
    source: str, text: str
) -> None:
    special = ("<|channel>", "<channel|>", "<|channel|>", "<|message|>")
    ids = Saying("qwen2.5", template=source, special=special).tokenizer.encode(text)
    local = Saying("qwen2.5", ids, template=source, special=special)

    reply = ask(local, asked("2 + 2?"))

    assert reply.call.finish_reason == "length"
    assert (reply.message.reasoning, reply.message.content) == ("hello", "")


def test_an_answer_that_was_cut_short_is_not_reasoning() -> None:
    ids = tiny_tokenizer("qwen3").encode("hello")

    reply = ask(Saying("qwen3", ids), asked("2 + 2?"))

    assert (reply.message.reasoning, reply.message.content) == (None, "hello")


def test_a_turn_that_never_left_the_reasoning_but_ended_is_an_answer() -> None:
    local = Saying("qwen2.5", "It is 4.", template=template("deepseek_r1_distill"))

    reply = ask(local, asked("2 + 2?"))

    assert (reply.message.reasoning, reply.message.content) == (None, "It is 4.")


def test_channels_are_read_without_tools_too() -> None:
    said = (
        "<|channel|>analysis<|message|>2 + 2<|end|>"
        "<|start|>assistant<|channel|>final<|message|>It is 4."
    )
    special = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>")
    local = Saying("qwen2.5", said, template=template("gptoss"), special=special)

    reply = ask(local, asked("2 + 2?"))

    assert (reply.message.reasoning, reply.message.content) == ("2 + 2", "It is 4.")


def test_a_format_of_calls_that_is_not_known_is_refused_where_tools_are_offered() -> None:
    told = "{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}"
    local = Saying("qwen2.5", "hello", "hello", template=told + "{{ messages[0].content }}")

    with pytest.raises(ConfigError, match="format of tool calls is unknown"):
        ask(local, asked("what"), tools=[LOOKUP])

    assert local.batches_seen == []
    assert ask(local, asked("what")).message.text == "hello"


def test_a_stop_text_ends_the_reply_before_it() -> None:
    local = shared("plain")
    free = ask(local, asked("what"), seed=1, max_tokens=40).message.text
    stop = free[6:8]

    reply = ask(local, asked("what"), seed=1, max_tokens=40, stop=(stop,))

    assert reply.message.text == free[: free.index(stop)]
    assert reply.call.finish_reason == "stop"
    assert reply.call.sampling["stop"] == [stop]
    assert reply.call.completion_ids is not None
    assert len(reply.call.completion_ids) < 40


def test_what_was_said_when_the_length_ran_out_is_kept_and_marked() -> None:
    reply = ask(Saying("qwen2.5", [5, 6, 7]), asked("what"))

    assert reply.call.finish_reason == "length"
    assert reply.call.completion_ids == (5, 6, 7)


def test_a_prompt_longer_than_the_context_is_refused_and_a_long_one_leaves_less() -> None:
    local = tiny_local("plain", context=40)

    with pytest.raises(EndpointError, match="the context length is 40") as caught:
        ask(local, asked("a" * 60))
    fitting = ask(local, asked("a" * 26))

    assert not caught.value.retryable
    assert fitting.call.prompt_ids is not None
    assert fitting.call.sampling["max_tokens"] == 40 - len(fitting.call.prompt_ids) < 12


def test_an_answer_that_the_context_cuts_off_is_told_from_one_that_its_limit_does() -> None:
    local = tiny_local("plain", context=40)
    local.stop_ids = (NEVER,)

    by_context = ask(local, asked("a" * 26))
    by_limit = ask(local, asked("a"), max_tokens=2)

    assert by_context.call.finish_reason == by_limit.call.finish_reason == "length"
    assert fills_context(by_context.call)
    assert not fills_context(by_limit.call)


def test_tools_without_a_place_in_the_template_are_reported_with_the_call() -> None:
    reply = ask(Saying("smollm2", "hello"), asked("what"), tools=[LOOKUP])

    assert (reply.call.__pydantic_extra__ or {})["lost"] == {
        "the chat template has no place for tools; left out": 1
    }


def test_a_model_that_fails_is_an_endpoint_error_for_each_caller() -> None:
    local = tiny_local("llama3")
    local.model.lm_head.weight.data.fill_(float("nan"))
    client = LocalClient(local, endpoint())

    async def both() -> list[Reply | BaseException]:
        calls = (client.complete([asked("what")]) for _ in range(2))
        return await asyncio.gather(*calls, return_exceptions=True)

    ends = asyncio.run(both())

    assert [type(end) for end in ends] == [EndpointError, EndpointError]
    assert "the model failed: the model returned logits that are not finite" in str(ends[0])


def test_a_call_that_is_given_up_stops_sampling_and_the_next_one_is_answered() -> None:
    local = tiny_local("plain", context=100_000)
    local.stop_ids = (-1,)
    patient = LocalClient(local, endpoint(max_tokens=90_000))
    brief = LocalClient(local, endpoint(max_tokens=2))

    async def giving_up() -> Reply:
        endless = asyncio.create_task(patient.complete([asked("what")]))
        while not local._turn.locked():
            await asyncio.sleep(0)
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        return await brief.complete([asked("what")])

    assert asyncio.run(asyncio.wait_for(giving_up(), 180)).call.finish_reason == "length"


def test_a_call_that_takes_too_long_says_so() -> None:
    local = tiny_local("plain", context=100_000)
    local.stop_ids = (-1,)

    with pytest.raises(EndpointError, match=r"the request timed out after 0\.05 s"):
        ask(local, asked("what"), max_tokens=90_000, timeout_s=0.05)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"api_base": "http://h/v1"}, "has no address"),
        ({"thinking": {"type": "enabled"}}, "`thinking` is supported by hosted models only"),
        ({"extra_params": {"threds": 2}}, "'threds', which this model does not support"),
        ({"extra_params": {"threads": 0}}, "threads=0 is not a whole number"),
        ({"extra_params": {"stop_token_ids": ["x"]}}, "stop_token_ids is not a list"),
        ({"extra_params": {"chat_template_kwargs": 3}}, "chat_template_kwargs is not an object"),
        ({"temperature": -1.0}, "temperature=-1.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        LocalClient(shared("plain"), endpoint(**fields))


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_batch=0"):
        LocalClient(shared("plain"), endpoint(), max_batch=0)


def test_a_folder_is_asked_through_connect(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama3")
    client = connect(endpoint(model=str(folder), temperature=0.0))

    async def both() -> tuple[Reply, Reply]:
        async with client:
            return await client.complete([asked("hello")]), await client.complete([asked("hello")])

    first, again = asyncio.run(both())

    assert first.message == again.message
    assert first.call.completion_ids is not None
    assert client.limiter.limit == 64


def test_a_folder_that_broke_since_it_was_checked_is_an_endpoint_error(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "llama3")
    client = connect(endpoint(model=str(folder)))
    (folder / "model.safetensors").write_bytes(b"not weights")

    with pytest.raises(EndpointError, match="cannot be loaded"):
        asyncio.run(client.complete([asked("hello")]))


def test_nobody_is_paid_for_a_model_in_memory() -> None:
    usage = ask(shared("plain"), asked("what is 1"), max_tokens=3).call.usage

    assert usage is not None
    assert usage.cost_usd == 0.0
