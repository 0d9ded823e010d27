"""Convert a conversation to token ids with the chat template and the ids of earlier turns.

A later turn starts with the exact ids of the earlier one wherever that can be proven. Sampled
tokens are never re-encoded from their text, which could yield other ids.
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

from .adapter import count_dropped_fields, to_function_tools
from .attempt_errors import AttemptError, ErrorKind

_MAX_CACHED_TURNS = 20_000
_ENCODE_CACHE_SIZE = 16
# Ids are decoded together with this many before them: some tokenizers drop a leading space.
_DECODE_CONTEXT = 8
_ROLE_ALIASES = {"developer": "system", "function": "tool"}
_TOOLS_NOT_RENDERED = "the chat template has no place for tools; left out"


@dataclass(frozen=True)
class Prompt:
    """A rendered prompt and its token ids."""

    text: str
    ids: tuple[int, ...]
    lost: Mapping[str, int] | None = None
    """Counts of fields that the template cannot represent, by kind."""

    @property
    def tools_unseen(self) -> bool:
        """Whether the template ignored the tools."""
        return _TOOLS_NOT_RENDERED in (self.lost or {})


@dataclass(frozen=True)
class _SampledTurn:
    """An answered call: its prompt and the sampled ids."""

    prompt: Prompt
    ids: tuple[int, ...]
    text: str
    """The text of the ids, with special tokens."""


class ChatPrompts:
    """Renders prompts with a tokenizer's chat template, and caches the turns for prefixes."""

    def __init__(self, tokenizer: Any, *, where: str, settings: Mapping[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._settings = dict(settings)
        self._turns = _TurnCache()
        # The rollouts of one prompt arrive together, and share its encoding.
        self._encode = lru_cache(maxsize=_ENCODE_CACHE_SIZE)(
            lambda text: tuple(tokenizer.encode(text, add_special_tokens=False))
        )
        self._context = lru_cache(maxsize=_ENCODE_CACHE_SIZE)(self._decode_ids)
        self._sees_tools = False
        self._text_arguments = False
        if not tokenizer.chat_template:
            raise build_missing_template_error(where)

    @property
    def special(self) -> list[str]:
        """The texts of the special tokens."""
        return list(self._tokenizer.all_special_tokens)

    def template(self, tools: Sequence[ToolSpec]) -> str:
        """Return the template text; some models have a separate one for tools."""
        return str(self._tokenizer.get_chat_template(None, tools=to_function_tools(tools) or None))

    def prompt(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Prompt:
        """Render the prompt for the next message. Raises `AttemptError` if the template fails."""
        converted = to_huggingface(map(_flatten_message, messages))
        wire = self._rename_reasoning_key(converted.value, tools)
        text = self._render(wire, tools)
        lost = count_dropped_fields(converted.dropped) or {}
        # Once a template has rendered tools, the comparison is not repeated.
        if tools and not self._sees_tools:
            self._sees_tools = self._render(wire, ()) != text
            if not self._sees_tools:
                lost = {**lost, _TOOLS_NOT_RENDERED: len(tools)}
        ids = self._extend_last_turn(messages, text) or self._encode(text)
        return Prompt(text, ids, lost or None)

    def remember(self, message: Message, prompt: Prompt, ids: Sequence[int]) -> None:
        """Cache the sampled ids of a message for the lifetime of the message."""
        sampled = tuple(ids)
        self._turns.put(
            message, _SampledTurn(prompt, sampled, self.decode(sampled, after=prompt.ids))
        )

    def decode(self, ids: Sequence[int], *, after: Sequence[int] = (), special: bool = True) -> str:
        """Decode `ids` in the context of the ids before them."""
        before = tuple(after[-_DECODE_CONTEXT:])
        known, whole = self._context(before, special), self._decode_ids([*before, *ids], special)
        return whole[len(known) :] if whole.startswith(known) else self._decode_ids(ids, special)

    def _decode_ids(self, ids: Sequence[int], special: bool) -> str:
        text = self._tokenizer.decode(
            list(ids), skip_special_tokens=not special, clean_up_tokenization_spaces=False
        )
        return str(text)

    def _render(self, wire: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
        from jinja2 import TemplateError

        try:
            if self._text_arguments:
                return self._apply_template(_stringify_arguments(wire), tools)
            try:
                return self._apply_template(wire, tools)
            except TypeError:
                # DeepSeek's templates append arguments to a string, and need them as JSON text.
                written = _stringify_arguments(wire)
                if written == wire:
                    raise
                text = self._apply_template(written, tools)
                self._text_arguments = True
                return text
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise AttemptError(
                ErrorKind.REFUSED,
                f"the chat template rejects these messages: {error}",
                hint="templates differ in the roles they accept, and in their order",
            ) from error

    def _apply_template(self, wire: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> str:
        text = self._tokenizer.apply_chat_template(
            list(wire),
            tools=to_function_tools(tools) or None,
            tokenize=False,
            add_generation_prompt=True,
            **self._settings,
        )
        return str(text)

    def _rename_reasoning_key(
        self, wire: list[dict[str, Any]], tools: Sequence[ToolSpec]
    ) -> list[dict[str, Any]]:
        # Some templates read reasoning from `thinking`.
        if not any("reasoning_content" in message for message in wire):
            return wire
        template = self.template(tools)
        if "reasoning_content" in template or "thinking" not in template:
            return wire
        renamed = []
        for message in wire:
            message = dict(message)
            if (thinking := message.pop("reasoning_content", None)) is not None:
                if message.get("tool_calls") and message.get("content"):
                    # Before a tool call such templates have one field for reasoning and content.
                    thinking, message["content"] = f"{thinking}\n{message['content']}", ""
                message["thinking"] = thinking
            renamed.append(message)
        return renamed

    def _extend_last_turn(self, messages: Sequence[Message], text: str) -> tuple[int, ...] | None:
        # Only if `text` starts with the exact text of the last cached turn.
        turn = next(
            (found for each in reversed(messages) if (found := self._turns.get(each))), None
        )
        if turn is None or not text.startswith(prefix := turn.prompt.text + turn.text):
            return None
        rest = text[len(prefix) :]
        ids = self._encode(rest)
        # Tokenizers that prepend a space to every text would insert one here.
        if (
            self.decode([*turn.ids[-_DECODE_CONTEXT:], *ids])
            != self.decode(turn.ids[-_DECODE_CONTEXT:]) + rest
        ):
            return None
        return (*turn.prompt.ids, *turn.ids, *ids)


class _TurnCache:
    """Turns by the identity of their message. Equal messages do not share one."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[weakref.ref[Message], _SampledTurn]] = OrderedDict()

    def put(self, message: Message, turn: _SampledTurn) -> None:
        key, kept = id(message), self._kept

        def forget(gone: weakref.ref[Message]) -> None:
            # The id may have been reused for another message by now.
            if (found := kept.get(key)) is not None and found[0] is gone:
                del kept[key]

        kept[key] = (weakref.ref(message, forget), turn)
        while len(kept) > _MAX_CACHED_TURNS:
            kept.popitem(last=False)

    def get(self, message: Message) -> _SampledTurn | None:
        found = self._kept.get(id(message))
        return found[1] if found is not None and found[0]() is message else None


def build_missing_template_error(where: str) -> ConfigError:
    """Build the error for a model without a chat template."""
    return ConfigError(
        "the tokenizer has no chat template: a base model cannot be prompted with messages",
        where=where,
        hint="use an instruct model, or save the tokenizer with `chat_template` set",
    )


def _stringify_arguments(wire: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    messages = [dict(message) for message in wire]
    for message in messages:
        if not message.get("tool_calls"):
            continue
        calls = []
        for call in message["tool_calls"]:
            arguments = call["function"]["arguments"]
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments, ensure_ascii=False)
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
        message["tool_calls"] = calls
    return messages


def _flatten_message(message: Message) -> Message:
    # Text templates accept one string as content, and know fewer roles.
    role, content = _ROLE_ALIASES.get(message.role, message.role), message.content
    if isinstance(content, tuple):
        for block in content:
            if not isinstance(block, TextBlock):
                raise AttemptError(
                    ErrorKind.REFUSED,
                    f"a message contains a {block.type!r} block, but the model accepts text only",
                )
        content = message.text
    if role == message.role and content is message.content:
        return message
    return message.model_copy(update={"role": role, "content": content})
