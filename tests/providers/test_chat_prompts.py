"""Prompts as ids: a later turn begins with the ids of the earlier one, where that is proven."""

import gc
from copy import deepcopy
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers import chat_prompts
from assay.providers.attempt_errors import AttemptError
from assay.providers.chat_prompts import ChatPrompts
from assay.types import Message, ToolSpec
from make import answered, asked, called, said
from tiny_models import FAMILIES, Family, tiny_tokenizer

LOOKUP = ToolSpec(name="lookup", description="Finds an order.")


def prompts_of(family: Family, **settings: Any) -> ChatPrompts:
    return ChatPrompts(tiny_tokenizer(family), where="test", settings=settings)


def ids_of(family: Family, text: str) -> tuple[int, ...]:
    return tuple(tiny_tokenizer(family).encode(text, add_special_tokens=False))


def scattered(family: Family, text: str) -> tuple[int, ...]:
    """`text` in single bytes: ids that no encoding of it would give."""
    tokenizer = tiny_tokenizer(family)
    return tuple(tokenizer.convert_tokens_to_ids(letter) for letter in text.replace(" ", "Ġ"))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_next_turn_begins_with_the_very_ids_that_were_sampled(family: Family) -> None:
    prompts = prompts_of(family)
    first = prompts.prompt([asked("hello")], ())
    sampled = (*scattered(family, "the answer"), tiny_tokenizer(family).eos_token_id)
    reply = said("the answer")
    prompts.remember(reply, first, sampled)

    second = prompts.prompt([asked("hello"), reply, asked("what")], ())

    assert sampled[:-1] != ids_of(family, "the answer")
    start = first.ids + sampled
    assert second.ids[: len(start)] == start
    assert tiny_tokenizer(family).decode(second.ids) == second.text


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_that_was_cut_short_gets_the_end_that_the_template_writes(family: Family) -> None:
    prompts = prompts_of(family)
    first = prompts.prompt([asked("hello")], ())
    cut = scattered(family, "the ans")
    reply = said("the ans")
    prompts.remember(reply, first, cut)

    second = prompts.prompt([asked("hello"), reply, asked("what")], ())

    start = first.ids + cut
    assert second.ids[: len(start)] == start
    assert second.ids[len(start)] == tiny_tokenizer(family).eos_token_id


def test_the_rollouts_of_one_prompt_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts, tokenizer = prompts_of("qwen2.5"), tiny_tokenizer("qwen2.5")
    encode, texts = tokenizer.encode, []

    def counted(text: str, **named: Any) -> Any:
        texts.append(text)
        return encode(text, **named)

    monkeypatch.setattr(tokenizer, "encode", counted)

    first, second = (prompts.prompt([asked("hello")], ()) for _ in range(2))

    assert first.ids == second.ids
    assert texts == [first.text]


def test_equal_messages_of_two_rollouts_keep_their_own_ids() -> None:
    prompts = prompts_of("smollm2")
    first = prompts.prompt([asked("hello")], ())
    end = tiny_tokenizer("smollm2").eos_token_id
    one, other = said("the"), said("the")
    prompts.remember(one, first, (*scattered("smollm2", "the"), end))
    prompts.remember(other, first, (*ids_of("smollm2", "the"), end))

    after = [prompts.prompt([asked("hello"), each, asked("what")], ()).ids for each in (one, other)]

    assert one == other
    assert after[0] != after[1]
    assert after[0][len(first.ids) :][:3] == scattered("smollm2", "the")


def test_a_message_that_only_looks_like_a_remembered_one_is_encoded_afresh() -> None:
    prompts = prompts_of("smollm2")
    first = prompts.prompt([asked("hello")], ())
    reply = said("the")
    prompts.remember(reply, first, (*scattered("smollm2", "the"), 375))

    fresh = prompts.prompt([asked("hello"), said("the"), asked("what")], ())

    assert fresh.ids == ids_of("smollm2", fresh.text)


@pytest.mark.parametrize(
    ("family", "sampled", "reply"),
    [
        ("llama3", "the answer ", said("the answer ")),  # the template trims
        ("smollm2", "the <|im_start|>answer", said("the answer")),  # a special token is left out
        ("qwen2.5", "the answer", said("another")),  # the text is not what was sampled
        ("qwen3", "<think>\nhm\n</think>\n\nthe", said("<think>\nhm\n</think>\n\nthe")),  # dropped
    ],
)
def test_where_the_template_writes_something_else_all_is_encoded_afresh(
    family: Family, sampled: str, reply: Message
) -> None:
    prompts = prompts_of(family)
    first = prompts.prompt([asked("hello")], ())
    end = tiny_tokenizer(family).eos_token_id
    prompts.remember(reply, first, (*ids_of(family, sampled), end))

    second = prompts.prompt([asked("hello"), reply, asked("what")], ())

    assert second.ids == ids_of(family, second.text)


def test_a_changed_history_before_the_reply_is_encoded_afresh() -> None:
    prompts = prompts_of("smollm2")
    first = prompts.prompt([asked("hello")], ())
    reply = said("the")
    prompts.remember(reply, first, (*scattered("smollm2", "the"), 375))

    second = prompts.prompt([asked("hello, hello"), reply, asked("what")], ())

    assert second.ids == ids_of("smollm2", second.text)


@pytest.mark.parametrize(
    ("family", "sampled"),
    [
        ("qwen2.5", '<tool_call>\n{"name": "lookup", "arguments": {"order": "A"}}\n</tool_call>'),
        ("qwen3", '<tool_call>\n{"name": "lookup", "arguments": {"order": "A"}}\n</tool_call>'),
        ("llama3", '{"name": "lookup", "parameters": {"order": "A"}}'),
        ("mistral", '[TOOL_CALLS][{"name": "lookup", "arguments": {"order": "A"}}]'),
    ],
)
def test_a_canonical_tool_call_is_continued_too(family: Family, sampled: str) -> None:
    prompts = prompts_of(family)
    first = prompts.prompt([asked("hello")], [LOOKUP])
    ids = (*ids_of(family, sampled), tiny_tokenizer(family).eos_token_id)
    reply = said("", called("lookup", order="A"))
    prompts.remember(reply, first, ids)

    second = prompts.prompt([asked("hello"), reply, answered("Oslo")], [LOOKUP])

    # Mistral's template tells the tools before the last question only, so its text changes.
    assert (second.ids[: len(first.ids + ids)] == first.ids + ids) == (family != "mistral")


def test_a_turn_is_forgotten_with_its_message_and_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chat_prompts, "_MAX_CACHED_TURNS", 2)
    prompts = prompts_of("plain")
    first = prompts.prompt([asked("hello")], ())
    replies = [said(str(number)) for number in range(3)]
    for reply in replies:
        prompts.remember(reply, first, [1])

    assert [prompts._turns.get(reply) is not None for reply in replies] == [False, True, True]
    del replies, reply
    gc.collect()
    assert len(prompts._turns._kept) == 0


def test_a_tokenizer_that_adds_a_space_before_a_text_is_not_trusted_with_the_rest() -> None:
    class Spacing:
        """Encodes every text as if a space stood before it."""

        def __init__(self) -> None:
            self._inner = tiny_tokenizer("smollm2")

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def encode(self, text: str, **options: Any) -> Any:
            return self._inner.encode(" " + text, **options)

    prompts = ChatPrompts(Spacing(), where="test", settings={})
    first = prompts.prompt([asked("hello")], ())
    reply = said("the")
    prompts.remember(reply, first, (*scattered("smollm2", "the"), 375))

    second = prompts.prompt([asked("hello"), reply, asked("what")], ())

    assert second.ids == ids_of("smollm2", " " + second.text)


def test_letters_of_several_tokens_are_decoded_where_they_stand() -> None:
    prompts = prompts_of("plain")
    letters = ids_of("plain", "né")

    assert prompts.decode(letters[1:], after=letters[:1]) == "é"
    assert prompts.decode(letters[2:], after=letters[:2]) == "\ufffd"


def test_tools_that_the_template_does_not_mention_are_counted_as_lost() -> None:
    heard = prompts_of("qwen2.5").prompt([asked("hello")], [LOOKUP])
    unheard = prompts_of("smollm2").prompt([asked("hello")], [LOOKUP, LOOKUP])

    assert "lookup" in heard.text
    assert heard.lost is None
    assert unheard.lost == {"the chat template has no place for tools; left out": 2}


def test_settings_reach_the_template() -> None:
    quiet = prompts_of("qwen3", enable_thinking=False).prompt([asked("hello")], ())

    assert quiet.text.endswith("<think>\n\n</think>\n\n")


def test_words_in_blocks_and_other_names_of_roles_are_written_as_templates_know_them() -> None:
    blocks = Message(
        role="user", content=[{"type": "text", "text": "what "}, {"type": "text", "text": "now"}]
    )
    told = Message(role="developer", content="Be brief.")

    text = prompts_of("smollm2").prompt([told, blocks], ()).text

    assert text.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nwhat now<")


def test_an_image_is_refused_by_a_model_of_text() -> None:
    seen = Message(role="user", content=[{"type": "image_url", "image_url": {"url": "x"}}])

    with pytest.raises(AttemptError, match="'image_url' block") as caught:
        prompts_of("smollm2").prompt([seen], ())
    assert caught.value.permanent


def test_messages_that_the_template_refuses_are_a_fault_of_the_request() -> None:
    with pytest.raises(AttemptError, match="only user, assistant and tool roles") as caught:
        prompts_of("mistral").prompt([Message(role="system", content="x"), asked("hello")], ())
    assert caught.value.permanent


def test_a_tokenizer_without_a_template_is_refused() -> None:
    class Bare:
        chat_template = None

    with pytest.raises(ConfigError, match="no chat template"):
        ChatPrompts(Bare(), where="local:base", settings={})


def with_template(template: str) -> ChatPrompts:
    tokenizer = deepcopy(tiny_tokenizer("qwen2.5"))
    tokenizer.chat_template = template
    return ChatPrompts(tokenizer, where="test", settings={})


def test_a_template_that_takes_arguments_as_text_is_given_text() -> None:
    prompts = with_template(
        "{% for m in messages %}{% for call in m.tool_calls or [] %}"
        "{{ 'call ' + call.function.arguments }}{% endfor %}{% endfor %}"
    )
    talk = [asked("what"), said("", called("f", x="ü"))]

    assert prompts.prompt(talk, ()).text == 'call {"x": "ü"}'
    assert prompts.prompt(talk, ()).text == 'call {"x": "ü"}'


def test_reasoning_is_given_under_the_key_that_the_template_reads() -> None:
    source = "{% for m in messages %}{{ m.thinking }}|{{ m.content }} {% endfor %}"
    answer = Message(role="assistant", content="4", reasoning="2 + 2")
    calls = Message(role="assistant", content="See.", reasoning="hm", tool_calls=(called("f"),))

    assert with_template(source).prompt([answer, calls], ()).text == "2 + 2|4 hm\nSee.| "
