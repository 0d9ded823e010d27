"""A tokenizer's chat template, rendered one turn at a time and verified.

A turn is rendered twice: the messages before it with the generation prompt, then with the answer.
The first rendering must be a prefix of the second, in characters and in tokens. An answer that
cannot be located for certain is refused, never guessed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from assay.errors import TokenError
from assay.formats import to_huggingface
from assay.providers import to_function_tools
from assay.types import DataBlock, Message, ToolSpec

from .token_spans import TokenTurn

_TEMPLATE_WHERE = "the chat template"
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")
_SPANS_HINT = (
    "use a chat template that marks generated text with {% generation %}; TRL's "
    "`get_training_chat_template` has some"
)


class ChatTokenizer(Protocol):
    """The interface of a tokenizer; those of transformers implement it."""

    chat_template: Any
    all_special_ids: Any
    added_tokens_decoder: Any

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...

    def decode(self, token_ids: Any, **options: Any) -> Any: ...

    def __call__(self, text: Any, **options: Any) -> Any: ...


@dataclass(frozen=True)
class RenderedChat:
    """A conversation as the template writes it."""

    text: str
    ids: tuple[int, ...]
    generated: tuple[bool, ...] | None = None
    """Which ids the template itself marks as generated, where it marks any."""


class ChatTemplate:
    """The template of a tokenizer, with the tools that it describes to the model."""

    def __init__(self, tokenizer: ChatTokenizer, tools: Sequence[ToolSpec] = ()) -> None:
        source = tokenizer.chat_template
        if isinstance(source, Mapping):
            source = source.get("default")
        if not isinstance(source, str) or not source:
            raise TokenError(
                "the tokenizer has no chat template",
                hint="use the tokenizer of a chat model, or set `chat_template`",
            )
        self.marks_spans = bool(_GENERATION.search(source))
        self._tokenizer = tokenizer
        self._tools = to_function_tools(tools) or None
        added = tokenizer.added_tokens_decoder.items()
        self._special = frozenset(
            {*tokenizer.all_special_ids, *(token for token, each in added if each.special)}
        )

    def turn(
        self, messages: Sequence[Message], place: int, *, stop_id: int | None = None
    ) -> TokenTurn:
        """Return the turn of the message at `place`. Raises `TokenError` for an unfit template.

        `stop_id` is the token that ends answers, where that is known.
        """
        prompt = self._render(messages[:place], answer=False)
        whole = self._render(messages[: place + 1], answer=True)
        if not whole.text.startswith(prompt.text):
            pairs = enumerate(zip(prompt.text, whole.text, strict=False))
            at = next((place for place, (one, two) in pairs if one != two), len(whole.text))
            raise TokenError(
                "the generation prompt is not a prefix of the conversation with the answer: "
                f"{prompt.text[at : at + 40]!r} against {whole.text[at : at + 40]!r}",
                where=_TEMPLATE_WHERE,
                hint=_SPANS_HINT,
            )
        size = len(prompt.ids)
        if whole.ids[:size] != prompt.ids or size == 0:
            raise TokenError(
                "the tokens of the prompt change when the answer follows: "
                f"the text continues with {whole.text[len(prompt.text) :][:40]!r}",
                where=_TEMPLATE_WHERE,
                hint=_SPANS_HINT,
            )
        self._check_answer(messages[place], whole.text[len(prompt.text) :])
        start: int | None = size
        # A template may write text of its own between the prompt and the marked answer.
        if whole.generated is not None:
            marked = (at for at in range(size, len(whole.ids)) if whole.generated[at])
            start = next(marked, None)
        if start is None:
            raise TokenError(
                "the template's {% generation %} marks no token of the answer",
                where=_TEMPLATE_WHERE,
            )
        end = self._find_end(whole.ids, start)
        # Some templates write a newline or a second marker between the answer and its stop token.
        if stop_id in whole.ids[end:] and stop_id not in whole.ids[start:end]:
            end = whole.ids.index(stop_id, end) + 1
        return TokenTurn(prompt=whole.ids[:start], completion=whole.ids[start:end])

    def check_writes(self, messages: Sequence[Message], words: Sequence[str]) -> None:
        """Raise `TokenError` unless the template writes these words of the messages."""
        text = self._render(messages, answer=True).text
        if missing := [word for word in words if word not in text]:
            raise TokenError(
                f"the template omits {missing[0]!r} of a message",
                where=_TEMPLATE_WHERE,
                hint=_WRITES_HINT,
            )

    def _find_end(self, ids: Sequence[int], start: int) -> int:
        # The last word is followed by special tokens and blanks. The turn ends with the first run
        # of special tokens; the model does not generate the rest.
        first = len(ids)
        while first > start and (
            ids[first - 1] in self._special or not self._decode([ids[first - 1]]).strip()
        ):
            first -= 1
        while first < len(ids) and ids[first] not in self._special:
            first += 1
        if first == len(ids):
            raise TokenError(
                "the template ends the answer without a special token, so the model would not "
                f"learn to stop: the answer ends with {self._decode(ids[-8:])!r}",
                where=_TEMPLATE_WHERE,
                hint="register the template's end-of-turn marker as a special token",
            )
        while first < len(ids) and ids[first] in self._special:
            first += 1
        return first

    def _check_answer(self, message: Message, written: str) -> None:
        # The answer must be written whole, and a plain answer without text before it.
        texts = [message.text, message.reasoning or "", *(call.name for call in message.tool_calls)]
        if posing := self._special.intersection(self._encode("".join(texts[:2]))):
            # Plain text that looks like a marker: encoded as the token, it would end a turn.
            raise TokenError(
                f"the answer contains {self._decode([min(posing)])!r} as text",
                where=_TEMPLATE_WHERE,
                hint="omit the sample, or remove the marker from its text",
            )
        if missing := [text for text in texts if text.strip() not in written]:
            raise TokenError(
                f"the template does not write {missing[0][:60]!r} of the answer",
                where=_TEMPLATE_WHERE,
                hint=_WRITES_HINT,
            )
        if message.reasoning or message.tool_calls or self.marks_spans:
            return
        text = message.text.strip()
        plain_ids = [token for token in self._encode(written) if token not in self._special]
        before = written.partition(text)[0] if text else self._decode(plain_ids)
        if before.strip():
            raise TokenError(
                f"the template adds {before!r} to the answer, which is not in the message",
                where=_TEMPLATE_WHERE,
                hint=_SPANS_HINT,
            )

    def _render(self, messages: Sequence[Message], *, answer: bool) -> RenderedChat:
        options: dict[str, Any] = {"tools": self._tools}
        wire = _to_template_messages(messages)
        try:
            text = self._tokenizer.apply_chat_template(
                wire, tokenize=False, add_generation_prompt=not answer, **options
            )
            if not (answer and self.marks_spans):
                return RenderedChat(text, self._encode(text))
            marked = self._tokenizer.apply_chat_template(
                wire, return_dict=True, return_assistant_tokens_mask=True, **options
            )
        except Exception as error:
            # A template is a program and may raise any exception.
            raise TokenError(
                f"the template fails on {' '.join(message.role for message in messages)}: "
                f"{type(error).__name__}: {str(error)[:200]}",
                where=_TEMPLATE_WHERE,
                hint="the model cannot be sent such a conversation with this template",
            ) from error
        generated = tuple(map(bool, marked["assistant_masks"]))
        return RenderedChat(text, tuple(marked["input_ids"]), generated)

    def _encode(self, text: str) -> tuple[int, ...]:
        # The template writes the special tokens: adding them again would double the first one.
        # Not verbose: `max_length` is checked elsewhere, so warnings about long texts are noise.
        found = self._tokenizer(text, add_special_tokens=False, verbose=False)
        return tuple(found["input_ids"])

    def _decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids)))


_WRITES_HINT = "use a template that writes it, or remove it from the message"


# Most templates reject the newer and older names of these roles.
_CHAT_TEMPLATE_ROLES = {"developer": "system", "function": "tool"}


def _to_template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    plain = []
    for place, message in enumerate(messages):
        if isinstance(message.content, tuple):
            if foreign := [part for part in message.content if isinstance(part, DataBlock)]:
                raise TokenError(
                    f"a part of type {foreign[0].type!r} cannot be tokenized",
                    where=f"message {place}",
                    hint="use text only; images and sound need the model's own processor",
                )
            message = message.model_copy(update={"content": message.text})
        if broken := [call for call in message.tool_calls if call.malformed]:
            raise TokenError(
                f"the arguments of the call to {broken[0].name!r} are not a JSON object",
                where=f"message {place}",
                hint="omit the sample: a template cannot reproduce malformed arguments",
            )
        role = _CHAT_TEMPLATE_ROLES.get(message.role, message.role)
        plain.append(message if role == message.role else message.model_copy(update={"role": role}))
    return to_huggingface(plain).value
