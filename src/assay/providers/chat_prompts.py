"""From a conversation to token ids: the chat template, and what was sampled before it.

A later turn begins with the very ids of the earlier one wherever that can be proven. Nothing
that a model sampled is ever encoded again from its text.
"""

import json
import weakref
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from assay.errors import ConfigError
from assay.formats import to_huggingface
from assay.types import Message, TextBlock, ToolSpec

from .adapter import count_dropped_fields
from .attempt_errors import AttemptError, ErrorKind
from .tool_text import to_template_tools

_MAX_CACHED_TURNS = 20_000
_ENCODE_CACHE_SIZE = 16
_DECODE_CONTEXT = 8
"""How many ids before a text are decoded with it: some tokenizers drop the first space."""

_ROLE_ALIASES = {"developer": "system", "function": "tool"}
_TOOLS_NOT_RENDERED = "the chat template has no place for tools; left out"


@dataclass(frozen=True)
class Prompt:
    """What a model is asked with."""

    text: str
    ids: tuple[int, ...]
    lost: Mapping[str, int] | None = None
    """What the template has no place for, and how often it came up."""

    @property
    def tools_unseen(self) -> bool:
        """Whether the template wrote nothing of the tools that it was given."""
        return _TOOLS_NOT_RENDERED in (self.lost or {})


@dataclass(frozen=True)
class _SampledTurn:
    """A call that was answered: its prompt, and what was sampled."""

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    """What the ids say, special tokens included."""


class ChatPrompts:
    """Writes prompts with a tokenizer's chat template, and remembers the turns it wrote."""

    def __init__(self, tokenizer: Any, *, where: str, settings: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._settings = dict(settings)
        self._turns = _TurnCache()
        # The rollouts of one prompt come together: what was just encoded is wanted again.
        self._encode = lru_cache(maxsize=_ENCODE_CACHE_SIZE)(self._encode_text)
        self._context = lru_cache(maxsize=_ENCODE_CACHE_SIZE)(self._decode_ids)
        self._sees_tools = False
        self._text_arguments = False
        if not tokenizer.chat_template:
            raise build_missing_template_error(where)

    @property
    def special(self) -> list[str]:
        """The texts of the tokens that are no part of what is said."""
        return list(self._tokenizer.all_special_tokens)

    def template(self, tools: Sequence[ToolSpec]) -> str:
        """The text of the template that is used: some models have another one for tools."""
        return str(self._tokenizer.get_chat_template(None, tools=to_template_tools(tools) or None))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Prompt:
        """The prompt for the next message. Raises `AttemptError` where the template refuses."""
        converted = to_huggingface(map(_flatten_message, messages))
        wire = self._rename_reasoning_key(converted.value, tools)
        text = self._render(wire, tools)
        lost = count_dropped_fields(converted.lost) or {}
        if tools and not self._sees_tools:
            self._sees_tools = self._render(wire, ()) != text
            if not self._sees_tools:
                lost = {**lost, _TOOLS_NOT_RENDERED: len(tools)}
        ids = self._extend_last_turn(messages, text) or self._encode(text)
        return Prompt(text, ids, lost or None)

    def remember(self, message: Message, prompt: Prompt, ids: Sequence[int]) -> None:
        """Keep what was sampled for a message, for as long as that message lives."""
        sampled = tuple(ids)
        self._turns.put(
            message, _SampledTurn(prompt, sampled, self.decode(sampled, after=prompt.ids))
        )

    def decode(self, ids: Sequence[int], *, after: Sequence[int] = (), special: bool = True) -> str:
        """What `ids` say where they stand after others."""
        before = tuple(after[-_DECODE_CONTEXT:])
        known, whole = self._context(before, special), self._decode_ids([*before, *ids], special)
        return whole[len(known) :] if whole.startswith(known) else self._decode_ids(ids, special)

    def _decode_ids(self, ids: Sequence[int], special: bool) -> str:
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _encode_text(self, text: str) -> tuple[int, ...]:
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def _render(self, wire: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
        from jinja2 import TemplateError

        try:
            if self._text_arguments:
                return self._apply_template(_stringify_arguments(wire), tools)
            try:
                return self._apply_template(wire, tools)
            except TypeError:
                # DeepSeek's templates add arguments to a text, and take them as JSON only.
                written = _stringify_arguments(wire)
                if written == wire:
                    raise
                text = self._apply_template(written, tools)
                self._text_arguments = True
                return text
        except (TemplateError, TypeError, KeyError, ValueError) as error:
            raise AttemptError(
                ErrorKind.REFUSED,
                f"the chat template refuses these messages: {error}",
                hint="templates differ in which roles they take, and in which order",
            ) from error

    def _apply_template(self, wire: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
        text = self._tokenizer.apply_chat_template(
            list(wire),
            tools=to_template_tools(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
            **self._settings,
        )
        return str(text)

    def _rename_reasoning_key(
        self, wire: list[dict[str, Any]], tools: Sequence[ToolSpec]
    ) -> list[dict[str, Any]]:
        """Reasoning under the key that the template reads: `thinking` in some."""
        if not any("reasoning_content" in message for message in wire):
            return wire
        template = self.template(tools)
        if "reasoning_content" in template or "thinking" not in template:
            return wire
        return [_rename_to_thinking(message) for message in wire]

    def _extend_last_turn(self, messages: Sequence[Message], text: str) -> tuple[int, ...] | None:
        """The last remembered turn and what follows it, if `text` says just that."""
        turn = next(
            (found for each in reversed(messages) if (found := self._turns.get(each))), None
        )
        if turn is None or not text.startswith(said := turn.prompt.text + turn.text):
            return None
        rest = text[len(said) :]
        ids = self._encode(rest)
        # Tokenizers that put a space before every text they encode would put one in here.
        if (
            self.decode([*turn.ids[-_DECODE_CONTEXT:], *ids])
            != self.decode(turn.ids[-_DECODE_CONTEXT:]) + rest
        ):
            return None
        return (*turn.prompt.ids, *turn.ids, *ids)


class _TurnCache:
    """Turns by the message object that came of them. Equal messages do not share one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[weakref.ref[Message], _SampledTurn]] = OrderedDict()

    def put(self, message: Message, turn: _SampledTurn) -> None:
        key, kept = id(message), self._kept

        def forget(gone: weakref.ref[Message]) -> None:
            # The number may belong to another message by now.
            if (found := kept.get(key)) is not None and found[0] is gone:
                del kept[key]

        kept[key] = (weakref.ref(message, forget), turn)
        while len(kept) > _MAX_CACHED_TURNS:
            kept.popitem(last=False)

    def get(self, message: Message) -> _SampledTurn | None:
        found = self._kept.get(id(message))
        return found[1] if found is not None and found[0]() is message else None


def build_missing_template_error(where: str) -> ConfigError:
    """What to say of a model that cannot be talked to."""
    return ConfigError(
        "the tokenizer has no chat template: a base model cannot be asked with messages",
        where=where,
        hint="use an instruct model, or save the tokenizer with `chat_template` set",
    )


def _stringify_arguments(wire: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Messages with the arguments of calls as JSON text, not as objects."""
    return [
        {**message, "tool_calls": [_stringify_call(call) for call in message["tool_calls"]]}
        if message.get("tool_calls")
        else dict(message)
        for message in wire
    ]


def _stringify_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {**call, "function": {**function, "arguments": text}}


def _rename_to_thinking(message: dict[str, Any]) -> dict[str, Any]:
    """A message with its reasoning under `thinking`.

    Before a tool call such templates have one place for reasoning and words together.
    """
    if "reasoning_content" not in message:
        return message
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    thinking = message["reasoning_content"]
    if rest.get("tool_calls") and rest.get("content"):
        thinking, rest["content"] = f"{thinking}\n{rest['content']}", ""
    return {**rest, "thinking": thinking}


def _flatten_message(message: Message) -> Message:
    """A message as text templates take it: words in one string, roles they know."""
    role, content = _ROLE_ALIASES.get(message.role, message.role), message.content
    if isinstance(content, tuple):
        for block in content:
            if not isinstance(block, TextBlock):
                raise AttemptError(
                    ErrorKind.REFUSED,
                    f"a message holds a {block.type!r} block, and the model reads text",
                )
        content = message.text
    if role == message.role and content is message.content:
        return message
    return message.model_copy(update={"role": role, "content": content})
