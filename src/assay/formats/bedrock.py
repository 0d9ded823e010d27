"""Converts messages of Bedrock's Converse API: content blocks, a separate system prompt.

Blobs are base64 text here, as in the JSON of the API. Fields that only Bedrock has are kept in an
extra named `bedrock`: on a tool call its other keys, on a message `thinking` (reasoning with its
signatures) and `result` (the other keys of a tool result, such as `status`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.errors import WireError
from assay.types import ContentBlock, DataBlock, Message, TextBlock, ToolCall

from .conversion import (
    Converted,
    Dropped,
    build_depth_error,
    check_iterable,
    expect_mapping,
    expect_text,
    get_mappings,
    get_namespace,
    is_same_json,
    join_reasoning,
    make_storable,
    read_items,
    refuse_deep_nesting,
    report_extras,
    report_unsupported_by_role,
    report_unused,
    validate_wire,
    write_blocks,
    write_plain_arguments,
)
from .media import build_data_url, get_image_url, parse_data_url, report_image_extras
from .turn_writer import TurnWriter, join_content, keep_original, read_tool_use, read_user_turn

BEDROCK_FORMAT = "bedrock"
_IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
_EMPTY_NOTE = "an empty message; left out"
_BEDROCK_EXTRAS_BY_ROLE = {"assistant": ("thinking",), "tool": ("result",)}


@dataclass(frozen=True)
class BedrockChat:
    """A conversation as the two arguments of the Converse API."""

    system: list[dict[str, Any]]
    messages: list[dict[str, Any]]


def to_bedrock(messages: Iterable[Message]) -> Converted[BedrockChat]:
    """Write `messages` as system blocks and turns of alternating roles.

    Neighbours of one role become one turn, and tool messages become user turns. Blank text is left
    out, which the API rejects. Missing tool-call ids are generated.
    """
    writer = _BedrockWriter.write_all(messages)
    return Converted(BedrockChat(writer.system, writer.turns), tuple(writer.dropped))


def from_bedrock(
    messages: Iterable[Mapping[str, Any]], *, system: Iterable[Mapping[str, Any]] | None = None
) -> list[Message]:
    """Read messages of the Converse API: each tool result becomes a tool message of its own."""
    read: list[Message] = []
    if system:
        with refuse_deep_nesting("system"):
            given = list(check_iterable(system, "system"))
            blocks = read_items(given, "system", _read_bedrock_block)
            data = {"role": "system", "content": join_content(blocks)}
            read.append(validate_wire(Message, data, "system"))
    for index, wire in enumerate(check_iterable(messages, "messages")):
        where = f"messages[{index}]"
        try:
            read.extend(_read_bedrock_turn(expect_mapping(wire, where), where))
        except RecursionError as error:
            raise build_depth_error(where) from error
    return read


@dataclass
class _BedrockWriter(TurnWriter):
    format_name = BEDROCK_FORMAT

    system: list[dict[str, Any]] = field(default_factory=list)
    last_role: str = ""
    """The role of the message that was written last: a turn of the user also has tool results."""

    def read_original(self, wire: Mapping[str, Any], message: Message, where: str) -> list[Message]:
        return _read_bedrock_turn(wire, where)

    def add_original(self, wire: Mapping[str, Any], read: list[Message], where: str) -> None:
        self._add_blocks(wire["role"], list(wire["content"]), read[0].role, where)
        self.last_role = read[-1].role
        self.track_messages(read)

    def write_message(self, message: Message, index: int, where: str) -> None:
        used = _BEDROCK_EXTRAS_BY_ROLE.get(message.role, ())
        report_unused(message.__pydantic_extra__, BEDROCK_FORMAT, used, where, self.dropped)
        if message.role in ("tool", "function"):
            self._add_blocks("user", [self._write_result(message, index, where)], "tool", where)
        elif message.role == "assistant":
            report_unsupported_by_role(message, where, self.dropped, ("tool_call_id", "name"))
            reasoning = _write_reasoning(message, where, self.dropped)
            spoken = _write_content(message.content, where, self.dropped)
            calls = self._write_calls(message, index, where)
            blocks = [*reasoning, *spoken, *calls]
            self._add_blocks("assistant", blocks, "assistant", where)
        else:
            self._write_prompt(message, where)

    def _write_prompt(self, message: Message, where: str) -> None:
        fields = ("tool_calls", "tool_call_id", "name", "reasoning")
        report_unsupported_by_role(message, where, self.dropped, fields)
        blocks = _write_content(message.content, where, self.dropped)
        leads = message.role in ("system", "developer") and not self.turns
        if message.role not in ("user", "system") or (message.role == "system" and not leads):
            note = "the system prompt" if leads else "a user message"
            self.dropped.append(Dropped(f"{where}.role", f"written as {note}"))
        if not leads:
            self._add_blocks("user", blocks, "user", where)
            return
        if not blocks:
            self.dropped.append(Dropped(where, _EMPTY_NOTE))
        elif self.system:
            self.dropped.append(Dropped(where, "joined to the system prompt before it"))
        self.system += blocks

    def _write_result(self, message: Message, index: int, where: str) -> dict[str, Any]:
        identifier = self.choose_result_id(message, index, where)
        own = get_namespace(message.__pydantic_extra__, BEDROCK_FORMAT)
        content = _write_content(message.content, where, self.dropped)
        result = {"toolUseId": identifier, "content": content}
        return {"toolResult": {**get_namespace(own, "result"), **result}}

    def _write_calls(self, message: Message, index: int, where: str) -> list[dict[str, Any]]:
        blocks = []
        for position, call in enumerate(message.tool_calls):
            at = f"{where}.tool_calls[{position}]"
            identifier = self.choose_call_id(call, f"{index}_{position}", at)
            report_extras(call.__pydantic_extra__, BEDROCK_FORMAT, at, self.dropped)
            use = {
                "toolUseId": identifier,
                "name": call.name,
                "input": write_plain_arguments(call, at, self.dropped),
            }
            own = get_namespace(call.__pydantic_extra__, BEDROCK_FORMAT)
            blocks.append({"toolUse": {**own, **use}})
        return blocks

    def _add_blocks(
        self, role: str, blocks: list[dict[str, Any]], message_role: str, where: str
    ) -> None:
        if not blocks:
            self.dropped.append(Dropped(where, _EMPTY_NOTE))
            return
        if self.turns and self.turns[-1]["role"] == role:
            # Tool results beside a text are messages of their own when they are read again.
            if message_role == self.last_role != "tool":
                self.dropped.append(Dropped(where, f"joined to the {role} message before it"))
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})
        self.last_role = message_role


def _write_content(
    content: str | tuple[ContentBlock, ...] | None, where: str, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    if isinstance(content, str):
        content = (TextBlock(text=content),)
    return write_blocks(content or (), where, dropped, _write_bedrock_block)


def _write_bedrock_block(
    block: ContentBlock, where: str, dropped: list[Dropped]
) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    if isinstance(block, TextBlock):
        report_extras(extra, "", where, dropped)
        if block.text.strip():
            return {"text": block.text}
        dropped.append(Dropped(where, "blank text is not accepted; left out"))
        return None
    url = get_image_url(block)
    image = None if url is None else _build_image(url)
    if image is not None:
        report_image_extras(block, "", where, dropped)
        return {"image": image}
    own = get_namespace(extra, BEDROCK_FORMAT)
    if url is None and own:
        report_extras(extra, BEDROCK_FORMAT, where, dropped)
        return {block.type: own["block"]} if "block" in own else None
    dropped.append(Dropped(where, f"Bedrock has no block for this `{block.type}` part; left out"))
    return None


def _build_image(url: str) -> dict[str, Any] | None:
    media = parse_data_url(url)
    if media is not None:
        kind = media[0].removeprefix("image/")
        known = kind in _IMAGE_FORMATS and bool(media[1])
        return {"format": kind, "source": {"bytes": media[1]}} if known else None
    # Bedrock fetches images from S3 only, and needs their format, which the suffix must name.
    kind = url.rpartition(".")[2].lower().replace("jpg", "jpeg")
    if not url.startswith("s3://") or kind not in _IMAGE_FORMATS:
        return None
    return {"format": kind, "source": {"s3Location": {"uri": url}}}


def _write_reasoning(message: Message, where: str, dropped: list[Dropped]) -> list[dict[str, Any]]:
    # A signature is verified over the text, so other or edited reasoning would be refused.
    own = get_namespace(message.__pydantic_extra__, BEDROCK_FORMAT)
    kept = get_mappings(own.get("thinking"))
    if kept and _join_reasoning_blocks(kept) == message.reasoning:
        return [{"reasoningContent": dict(item)} for item in kept]
    if message.reasoning is not None:
        note = "Bedrock accepts reasoning only with its signature; left out"
        dropped.append(Dropped(f"{where}.reasoning", note))
    return []


def _join_reasoning_blocks(blocks: Iterable[Mapping[str, Any]]) -> str | None:
    texts = (get_namespace(block, "reasoningText").get("text") for block in blocks)
    return join_reasoning(texts)


def _read_bedrock_turn(wire: Mapping[str, Any], where: str) -> list[Message]:
    role = wire.get("role")
    if role not in ("user", "assistant"):
        raise WireError(
            f"the role {role!r} is not 'user' or 'assistant'",
            where=f"{where}.role",
            hint="pass the system prompt as `system=`",
        )
    blocks = read_items(wire.get("content"), f"{where}.content", expect_mapping)
    at = f"{where}.content"
    if role == "assistant":
        messages = [_read_assistant_turn(blocks, at)]
    else:
        messages = read_user_turn(
            blocks,
            at,
            is_result=lambda block: "toolResult" in block,
            read_result=_read_tool_result,
            read_part=_read_bedrock_block,
        )
    sent = [dict(block) for block in blocks if _is_accepted(block)]
    if not sent:
        return messages
    written = _BedrockWriter.write_again(messages).turns
    return keep_original({"role": role, "content": sent}, written, messages, BEDROCK_FORMAT)


def _is_accepted(block: Mapping[str, Any]) -> bool:
    # Models answer with blank text and unsigned reasoning, but the API does not take them back.
    if "reasoningContent" in block:
        return _is_signed(block["reasoningContent"])
    text = block.get("text")
    return not isinstance(text, str) or bool(text.strip())


def _is_signed(reasoning: object) -> bool:
    if not isinstance(reasoning, Mapping):
        return False
    text = get_namespace(reasoning, "reasoningText")
    return "redactedContent" in reasoning or bool(text.get("signature"))


def _read_assistant_turn(blocks: list[Mapping[str, Any]], where: str) -> Message:
    spoken: list[ContentBlock] = []
    calls: list[ToolCall] = []
    thinking: list[Mapping[str, Any]] = []
    for position, block in enumerate(blocks):
        at = f"{where}[{position}]"
        if "toolUse" in block:
            use = expect_mapping(block["toolUse"], f"{at}.toolUse")
            calls.append(read_tool_use(use, "toolUseId", f"{at}.toolUse", BEDROCK_FORMAT))
        elif "reasoningContent" in block:
            thinking.append(expect_mapping(block["reasoningContent"], f"{at}.reasoningContent"))
        else:
            spoken.append(_read_bedrock_block(block, at))
    data: dict[str, Any] = {"role": "assistant", "content": join_content(spoken)}
    data["tool_calls"] = tuple(calls)
    data["reasoning"] = _join_reasoning_blocks(thinking)
    if thinking and all(map(_is_signed, thinking)):
        data[BEDROCK_FORMAT] = {"thinking": make_storable([dict(item) for item in thinking])}
    return validate_wire(Message, data, where)


def _read_tool_result(block: Mapping[str, Any], at: str) -> Message:
    where = f"{at}.toolResult"
    result = expect_mapping(block["toolResult"], where)
    blocks = read_items(result.get("content"), f"{where}.content", _read_bedrock_block)
    data: dict[str, Any] = {
        "role": "tool",
        "tool_call_id": expect_text(result.get("toolUseId"), f"{where}.toolUseId"),
        "content": join_content(blocks),
    }
    rest = {key: value for key, value in result.items() if key not in ("toolUseId", "content")}
    if rest:
        data[BEDROCK_FORMAT] = {"result": make_storable(rest)}
    return validate_wire(Message, data, where)


def _read_bedrock_block(item: object, where: str) -> ContentBlock:
    # A block has no `type`: its one key identifies it.
    block = expect_mapping(item, where)
    if "text" in block:
        return TextBlock(text=expect_text(block["text"], f"{where}.text"))
    kind = next(iter(block), "block")
    url = _read_image_url(block.get("image"))
    if url is not None:
        return validate_wire(DataBlock, {"type": "image_url", "image_url": {"url": url}}, where)
    own = {"block": make_storable(block.get(kind))}
    return validate_wire(DataBlock, {"type": kind, BEDROCK_FORMAT: own}, where)


def _read_image_url(image: object) -> str | None:
    # Only a URL from which `_build_image` restores this very image.
    if not isinstance(image, Mapping):
        return None
    source = get_namespace(image, "source")
    url = build_data_url(f"image/{image.get('format')}", source.get("bytes"))
    if url is None:
        url = get_namespace(source, "s3Location").get("uri")
    same = isinstance(url, str) and is_same_json(_build_image(url), dict(image))
    return url if same else None
