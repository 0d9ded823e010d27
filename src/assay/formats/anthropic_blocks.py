"""The blocks of Anthropic messages, one at a time: text, images, thinking, calls, results."""

from collections.abc import Mapping
from typing import Any

from assay.types import ContentBlock, DataBlock, Message, TextBlock, ToolCall

from .conversion import (
    Lost,
    joined_reasoning,
    mapping_at,
    namespace_of,
    report_extras,
    same,
    sequence_at,
    storable,
    text_at,
    validated,
)
from .media import (
    data_url,
    image_address,
    media_from_data_url,
    report_beside_address,
)

FORMAT = "anthropic"


def write_blocks(
    content: tuple[ContentBlock, ...] | None, where: str, lost: list[Lost]
) -> list[dict[str, Any]]:
    """Content as blocks, reporting the parts that there is no block for."""
    blocks = (
        _block(block, f"{where}.content[{position}]", lost)
        for position, block in enumerate(content or ())
    )
    return [block for block in blocks if block is not None]


def _block(block: ContentBlock, where: str, lost: list[Lost]) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = namespace_of(extra, FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, FORMAT, where, lost)
        return {**own, "type": "text", "text": block.text}
    source = _source(image_address(block))
    if source is not None:
        report_beside_address(block, FORMAT, where, lost)
        return {**own, "type": "image", "source": source}
    if FORMAT in extra and "image_url" not in extra:
        report_extras(extra, FORMAT, where, lost)
        return {**own, "type": block.type}
    lost.append(Lost(where, f"Anthropic has no block for this `{block.type}` part; left out"))
    return None


def _source(url: str | None) -> dict[str, Any] | None:
    if url is None:
        return None
    if media := media_from_data_url(url):
        return {"type": "base64", "media_type": media[0], "data": media[1]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    return None


def read_block(item: object, where: str) -> ContentBlock:
    """A block as a text, an image, or a block that only Anthropic has."""
    block = mapping_at(item, where)
    kind = text_at(block.get("type"), f"{where}.type")
    rest = {key: value for key, value in block.items() if key != "type"}
    if kind == "text":
        text = text_at(rest.pop("text", None), f"{where}.text")
        own = {FORMAT: storable(rest)} if rest else {}
        return validated(TextBlock, {"type": kind, "text": text, **own}, where)
    url = _address(rest.get("source")) if kind == "image" else None
    if url is None:
        return validated(DataBlock, {"type": kind, FORMAT: storable(rest)}, where)
    del rest["source"]
    data: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if rest:
        data[FORMAT] = storable(rest)
    return validated(DataBlock, data, where)


def _address(source: object) -> str | None:
    """The URL that `_source` makes this very source from, or None when there is none."""
    if not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64":
        url = data_url(source.get("media_type"), source.get("data"))
    else:
        url = source.get("url")
    return url if isinstance(url, str) and same(_source(url), dict(source)) else None


def write_thinking(
    message: Message, own: Mapping[str, Any], where: str, lost: list[Lost]
) -> list[dict[str, Any]]:
    """The thinking blocks that were read with this reasoning; Anthropic accepts no other."""
    kept = own.get("thinking")
    kept = [item for item in kept if isinstance(item, Mapping)] if isinstance(kept, list) else []
    if len(kept) == 1 and "type" not in kept[0] and message.reasoning is not None:
        return [{**kept[0], "type": "thinking", "thinking": message.reasoning}]
    if kept and said_in(kept) == message.reasoning:
        return [dict(item) for item in kept]
    if message.reasoning is not None:
        what = "Anthropic accepts thinking only with its signature; left out"
        lost.append(Lost(f"{where}.reasoning", what))
    if kept:
        lost.append(Lost(f"{where}.anthropic", "the signatures of other thinking; left out"))
    return []


def said_in(thinking: list[Mapping[str, Any]]) -> str | None:
    """The text of thinking blocks; None when all of them are redacted."""
    return joined_reasoning(block.get("thinking") for block in thinking)


def read_result(block: Mapping[str, Any], where: str) -> Message:
    """A `tool_result` block as a tool message."""
    content = block.get("content")
    data: dict[str, Any] = {"role": "tool", "content": content}
    data["tool_call_id"] = text_at(block.get("tool_use_id"), f"{where}.tool_use_id")
    if content is not None and not isinstance(content, str):
        inner = sequence_at(content, f"{where}.content")
        data["content"] = tuple(
            read_block(item, f"{where}.content[{n}]") for n, item in enumerate(inner)
        )
    known = ("type", "tool_use_id", "content")
    rest = {key: value for key, value in block.items() if key not in known}
    if rest:
        data[FORMAT] = {"result": storable(rest)}
    return validated(Message, data, where)


def read_call(block: Mapping[str, Any], where: str) -> ToolCall:
    """A `tool_use` block as a tool call."""
    data: dict[str, Any] = {
        "id": text_at(block.get("id"), f"{where}.id"),
        "name": text_at(block.get("name"), f"{where}.name"),
        "arguments": storable(dict(mapping_at(block.get("input"), f"{where}.input"))),
    }
    known = ("type", "id", "name", "input")
    rest = {key: value for key, value in block.items() if key not in known}
    if rest:
        data[FORMAT] = storable(rest)
    return validated(ToolCall, data, where)
