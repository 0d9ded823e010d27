"""Hypothesis strategies for messages, and a check that nothing is lost without a report."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from assay.formats.conversion import UNSUPPORTED_FIELDS, Dropped
from assay.types import ContentBlock, DataBlock, Message, TextBlock, ToolCall

words = st.text(max_size=12)
names = st.text(min_size=1, max_size=8)
keys = st.sampled_from(["x_one", "x_two", "cache_control", "note"])
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(words, inner, max_size=2),
    max_leaves=4,
)
objects = st.dictionaries(words, values, max_size=3)
unknown = st.dictionaries(keys, values, max_size=2)
some_keys = st.dictionaries(keys, values, min_size=1, max_size=2)
some_unknown: st.SearchStrategy[dict[str, Any]] = st.just({}) | unknown
data_urls = st.sampled_from(["data:image/png;base64,AAAA", "data:image/x+y;base64,"])
web_urls = st.sampled_from(["https://example.org/a.png", "http://example.org/b.JPEG?size=1"])
image_urls = data_urls | web_urls
FORMATS = ["openai_chat", "huggingface", "anthropic", "gemini"]


def text_block(**extra: Any) -> Any:
    return TextBlock.model_validate({"type": "text", **extra})


def data_block(**fields: Any) -> Any:
    return DataBlock.model_validate(fields)


def blocks_of(texts: Any, *others: Any) -> Any:
    """Content of two blocks or more, or one that is not plain text: no string says the same."""
    text = texts.map(lambda value: text_block(text=value))
    image = image_urls.map(lambda url: data_block(type="image_url", image_url={"url": url}))
    return st.one_of(
        st.tuples(image),
        st.lists(st.one_of(text, image, *others), min_size=2, max_size=4).map(tuple),
    )


def calls_of(extra: Any = some_unknown, ids: Any = names) -> Any:
    return st.lists(
        st.builds(
            lambda identifier, name, arguments, more: ToolCall.model_validate(
                {"id": identifier, "name": name, "arguments": arguments, **more}
            ),
            ids,
            names,
            objects,
            extra,
        ),
        max_size=3,
    ).map(tuple)


@st.composite
def any_calls(draw: st.DrawFn) -> ToolCall:
    fields: dict[str, Any] = {"id": draw(st.none() | names), "name": draw(words)}
    fields["arguments"] = draw(objects)
    if draw(st.booleans()):
        fields["raw_arguments"] = draw(
            words | st.sampled_from(["{}", '{"a": 1}', "[1]", "{", '{"a":NaN}'])
        )
    return ToolCall.model_validate(fields | draw(some_unknown) | draw(any_namespaces()))


@st.composite
def any_namespaces(draw: st.DrawFn) -> dict[str, Any]:
    """What another format may have left on a message, a block or a call."""
    if draw(st.integers(0, 3)):
        return {}
    return {draw(st.sampled_from(FORMATS)): draw(unknown)}


@st.composite
def any_blocks(draw: st.DrawFn) -> ContentBlock:
    extra = draw(some_unknown) | draw(any_namespaces())
    if draw(st.booleans()):
        block: ContentBlock = text_block(text=draw(words), **extra)
    elif draw(st.booleans()):
        image: dict[str, Any] = {"url": draw(image_urls | words)}
        if draw(st.booleans()):
            image["detail"] = draw(words)
        block = data_block(type="image_url", image_url=image, **extra)
    else:
        kind = draw(st.sampled_from(["input_audio", "file", "image", "document", "new"]))
        block = data_block(type=kind, **extra)
    return block


@st.composite
def any_messages(draw: st.DrawFn) -> Message:
    """A message with any of its fields filled, whether or not they go together."""
    roles = ["system", "developer", "user", "assistant", "tool", "function", "critic"]
    blocks = st.lists(any_blocks(), max_size=3).map(tuple)
    optional: dict[str, Any] = {
        "content": st.none() | words | blocks,
        "tool_calls": st.lists(any_calls(), max_size=2).map(tuple),
        "tool_call_id": names,
        "name": names,
        "reasoning": words,
        "details": objects,
        "metadata": st.dictionaries(words, words, max_size=2),
        **dict.fromkeys(("provider", "api", "model", "timestamp"), words),
    }
    fields = draw(st.fixed_dictionaries({"role": st.sampled_from(roles)}, optional=optional))
    return Message.model_validate(fields | draw(some_unknown) | draw(any_namespaces()))


def as_json(value: object) -> str:
    """One spelling for equal JSON, so that `1`, `1.0` and `True` are told apart."""
    return json.dumps(value, sort_keys=True)


def recorded(messages: Iterable[Message]) -> list[Message]:
    """The messages after a trip through our own JSON."""
    return [Message.from_json(message.to_json()) for message in messages]


def unreported(
    messages: Sequence[Message], back: Sequence[Message], dropped: Iterable[Dropped]
) -> list[str]:
    """Every set field of `messages` that is neither in `back` nor named in `dropped`."""
    wheres = {loss.where for loss in dropped}
    heads = [n for n in range(len(messages)) if f"messages[{n}]" not in wheres]
    if len(heads) != len(back):
        return [f"{len(heads)} messages are not reported as joined, but {len(back)} came back"]
    called = {call.id: call.name for message in back for call in message.tool_calls}
    problems: list[str] = []
    for head, found in zip(heads, back, strict=True):
        grown = any(
            f"messages[{n}]" in wheres
            for n in range(head + 1, (*heads, len(messages))[heads.index(head) + 1])
        )
        checker = _Checker(f"messages[{head}]", wheres, grown, called)
        problems += checker.problems(messages[head], found)
    return problems


class _Checker:
    """Compares one message with what came back of it."""

    def __init__(
        self, where: str, wheres: set[str], grown: bool, called: dict[str | None, str]
    ) -> None:
        self.where = where
        self.wheres = wheres
        self.grown = grown
        """Whether other messages were joined to this one: then it may say more."""
        self.called = called

    def problems(self, sent: Message, found: Message) -> list[str]:
        wrong = [
            name
            for name in ("role", "tool_call_id", "name", "reasoning", *UNSUPPORTED_FIELDS)
            if getattr(sent, name) not in (None, {})
            and getattr(sent, name) != getattr(found, name)
            and not self.named(name)
            and not (name == "name" and self.called.get(sent.tool_call_id) == sent.name)
        ]
        wrong += self._extras(sent, found, "")
        if not self.named("tool_calls"):
            wrong += self._calls(sent.tool_calls, found.tool_calls)
        if not self.named("content"):
            wrong += self._content(_listed(sent.content), _listed(found.content))
        return [f"{self.where}.{name}" for name in wrong]

    def named(self, path: str) -> bool:
        return f"{self.where}.{path}" in self.wheres

    def _extras(self, sent: Any, found: Any, path: str) -> list[str]:
        there = found.__pydantic_extra__ or {}
        return [
            f"{path}{name}"
            for name, value in (sent.__pydantic_extra__ or {}).items()
            if value is not None
            and not (name in FORMATS and not any(v is not None and v != {} for v in value.values()))
            and there.get(name) != value
            # Kept aside only where a name is taken; elsewhere the key comes back as an extra.
            and not (name == "openai_chat" and value.items() <= there.items())
            and not any(where.startswith(f"{self.where}.{path}{name}") for where in self.wheres)
        ]

    def _calls(self, sent: Sequence[ToolCall], found: Sequence[ToolCall]) -> list[str]:
        if len(found) < len(sent) or (len(found) > len(sent) and not self.grown):
            return ["tool_calls"]
        wrong = []
        for n, (left, right) in enumerate(zip(sent, found, strict=False)):
            path = f"tool_calls[{n}]."
            wrong += [
                f"{path}{name}"
                for name in ("id", "name", "arguments", "raw_arguments")
                if getattr(left, name) not in (None, {})
                and getattr(left, name) != getattr(right, name)
                and not self.named(f"{path}{name}")
                # Where the usual spelling is the model's own, it is not kept a second time.
                and not (name == "raw_arguments" and left.raw_arguments == right.arguments_text)
            ]
            wrong += self._extras(left, right, path)
        return wrong

    def _content(self, sent: list[Any], found: list[Any]) -> list[str]:
        kept = [(n, block) for n, block in enumerate(sent) if not self.named(f"content[{n}]")]
        if len(found) < len(kept) or (len(found) > len(kept) and not self.grown):
            return ["content"]
        wrong = []
        for (n, left), right in zip(kept, found, strict=False):
            path = f"content[{n}]"
            if isinstance(left, TextBlock):
                same = isinstance(right, TextBlock) and left.text == right.text
            else:
                same = left.type == right.type
            wrong += [] if same else [path]
            wrong += self._block_extras(left, right, path)
        return wrong

    def _block_extras(self, left: Any, right: Any, path: str) -> list[str]:
        wrong = self._extras(left, right, f"{path}.")
        # Part of an image's object may be reported rather than the whole of it.
        return [name for name in wrong if not self.named(f"{path}.image_url.detail")]


def _listed(content: Any) -> list[Any]:
    """A string and a lone plain text block say the same; so do nothing and no blocks."""
    if content is None:
        return []
    return [text_block(text=content)] if isinstance(content, str) else list(content)
