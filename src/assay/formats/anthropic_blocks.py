"""Converts single Anthropic blocks: text, images, thinking, calls, results."""

from collections.abc import Mapping
from typing import Any

from assay.types import ContentBlock, DataBlock, Message, TextBlock

from .conversion import (
    Dropped,
    expect_mapping,
    expect_text,
    get_mappings,
    get_namespace,
    is_same_json,
    join_reasoning,
    make_storable,
    read_items,
    report_extras,
    validate_wire,
    write_blocks,
)
from .media import (
    build_data_url,
    get_image_url,
    parse_data_url,
    report_image_extras,
)

ANTHROPIC_FORMAT = "anthropic"


def write_anthropic_blocks(
    content: tuple[ContentBlock, ...] | None, where: str, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    """Return content as blocks; report the parts that Anthropic has no block for."""
    return write_blocks(content or (), where, dropped, _write_anthropic_block)


def _write_anthropic_block(
    block: ContentBlock, where: str, dropped: list[Dropped]
) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = get_namespace(extra, ANTHROPIC_FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, ANTHROPIC_FORMAT, where, dropped)
        return {**own, "type": "text", "text": block.text}
    source = _build_image_source(get_image_url(block))
    if source is not None:
        report_image_extras(block, ANTHROPIC_FORMAT, where, dropped)
        return {**own, "type": "image", "source": source}
    if ANTHROPIC_FORMAT in extra and "image_url" not in extra:
        report_extras(extra, ANTHROPIC_FORMAT, where, dropped)
        return {**own, "type": block.type}
    dropped.append(Dropped(where, f"Anthropic has no block for this `{block.type}` part; left out"))
    return None


def _build_image_source(url: str | None) -> dict[str, Any] | None:
    if url is None:
        return None
    if media := parse_data_url(url):
        return {"type": "base64", "media_type": media[0], "data": media[1]}
    if url.startswith(("https://", "http://")):
        return {"type": "url", "url": url}
    return None


def read_anthropic_block(item: object, where: str) -> ContentBlock:
    """Read a block as text, an image, or a block that only Anthropic has."""
    block = expect_mapping(item, where)
    kind = expect_text(block.get("type"), f"{where}.type")
    rest = {key: value for key, value in block.items() if key != "type"}
    if kind == "text":
        text = expect_text(rest.pop("text", None), f"{where}.text")
        own = {ANTHROPIC_FORMAT: make_storable(rest)} if rest else {}
        return validate_wire(TextBlock, {"type": kind, "text": text, **own}, where)
    url = _read_source_url(rest.get("source")) if kind == "image" else None
    if url is None:
        return validate_wire(
            DataBlock, {"type": kind, ANTHROPIC_FORMAT: make_storable(rest)}, where
        )
    del rest["source"]
    data: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if rest:
        data[ANTHROPIC_FORMAT] = make_storable(rest)
    return validate_wire(DataBlock, data, where)


def _read_source_url(source: object) -> str | None:
    # Only a URL from which `_build_image_source` restores this very source.
    if not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64":
        url = build_data_url(source.get("media_type"), source.get("data"))
    else:
        url = source.get("url")
    same = isinstance(url, str) and is_same_json(_build_image_source(url), dict(source))
    return url if same else None


def write_thinking(
    message: Message, own: Mapping[str, Any], where: str, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    """Return the thinking blocks that were read with this reasoning."""
    # Anthropic verifies a signature over the text, so other or edited thinking is refused.
    kept = get_mappings(own.get("thinking"))
    if len(kept) == 1 and "type" not in kept[0] and message.reasoning is not None:
        return [{**kept[0], "type": "thinking", "thinking": message.reasoning}]
    if kept and join_thinking(kept) == message.reasoning:
        return [dict(item) for item in kept]
    if message.reasoning is not None:
        note = "Anthropic accepts thinking only with its signature; left out"
        dropped.append(Dropped(f"{where}.reasoning", note))
    if kept:
        dropped.append(Dropped(f"{where}.anthropic", "the signatures of other thinking; left out"))
    return []


def join_thinking(thinking: list[Mapping[str, Any]]) -> str | None:
    """Return the text of thinking blocks; None when all of them are redacted."""
    return join_reasoning(block.get("thinking") for block in thinking)


def read_tool_result(block: Mapping[str, Any], where: str) -> Message:
    """Read a `tool_result` block as a tool message."""
    content = block.get("content")
    data: dict[str, Any] = {"role": "tool", "content": content}
    data["tool_call_id"] = expect_text(block.get("tool_use_id"), f"{where}.tool_use_id")
    if content is not None and not isinstance(content, str):
        data["content"] = tuple(read_items(content, f"{where}.content", read_anthropic_block))
    known = ("type", "tool_use_id", "content")
    rest = {key: value for key, value in block.items() if key not in known}
    if rest:
        data[ANTHROPIC_FORMAT] = {"result": make_storable(rest)}
    return validate_wire(Message, data, where)
