"""Converts single Gemini parts: text, media and function responses."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from assay.types import ContentBlock, DataBlock, Message, TextBlock

from .conversion import (
    Dropped,
    expect_mapping,
    expect_optional_text,
    expect_text,
    get_namespace,
    make_storable,
    report_extras,
    validate_wire,
    write_blocks,
)
from .media import build_data_url, get_image_url, parse_data_url, report_image_extras

GEMINI_FORMAT = "gemini"

# The REST API uses camelCase, the Python SDK snake_case; both occur in files.
_CAMEL_CASE_KEYS = {
    "code_execution_result": "codeExecutionResult",
    "display_name": "displayName",
    "executable_code": "executableCode",
    "file_data": "fileData",
    "file_uri": "fileUri",
    "function_call": "functionCall",
    "function_response": "functionResponse",
    "inline_data": "inlineData",
    "mime_type": "mimeType",
    "thought_signature": "thoughtSignature",
    "video_metadata": "videoMetadata",
    "will_continue": "willContinue",
}
_PART_KINDS = ("inlineData", "fileData", "executableCode", "codeExecutionResult", "functionCall")
# Not `mimetypes`, whose answers depend on the machine's configuration.
_IMAGE_TYPES = {
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
}


def to_camel_part(part: object, where: str) -> dict[str, Any]:
    """Return `part` in camelCase. A key that occurs in both spellings is left unchanged."""
    camel = _to_camel_keys(expect_mapping(part, where))
    for key in ("inlineData", "fileData", "functionCall", "functionResponse"):
        if isinstance(camel.get(key), Mapping):
            camel[key] = _to_camel_keys(expect_mapping(camel[key], f"{where}.{key}"))
    return camel


def _to_camel_keys(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key if _CAMEL_CASE_KEYS.get(key, key) in data else _CAMEL_CASE_KEYS.get(key, key): value
        for key, value in data.items()
    }


def write_gemini_parts(
    content: str | tuple[ContentBlock, ...] | None, where: str, dropped: list[Dropped]
) -> list[dict[str, Any]]:
    """Return content as parts; report the blocks that Gemini has no part for."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    return write_blocks(content, where, dropped, _write_gemini_part)


def _write_gemini_part(
    block: ContentBlock, where: str, dropped: list[Dropped]
) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = get_namespace(extra, GEMINI_FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, GEMINI_FORMAT, where, dropped)
        return {**own, "text": block.text}
    url = get_image_url(block)
    if url is not None:
        part = _build_image_part(url, own)
        if part is not None:
            report_image_extras(block, GEMINI_FORMAT, where, dropped)
            return part
    elif GEMINI_FORMAT in extra and _find_part_kind(own) == block.type:
        report_extras(extra, GEMINI_FORMAT, where, dropped)
        return dict(own)
    dropped.append(Dropped(where, f"Gemini has no part for this `{block.type}`; left out"))
    return None


def _build_image_part(url: str, own: Mapping[str, Any]) -> dict[str, Any] | None:
    # Gemini does not detect the type of an image that it fetches itself.
    rest = {key: value for key, value in own.items() if key != "mimeType"}
    if media := parse_data_url(url):
        return {**rest, "inlineData": {"mimeType": media[0], "data": media[1]}}
    kind = own.get("mimeType") or _guess_image_type(url)
    return {**rest, "fileData": {"mimeType": kind, "fileUri": url}} if kind else None


def _guess_image_type(url: str) -> str | None:
    path = url.partition("?")[0].partition("#")[0]
    return _IMAGE_TYPES.get(path.rpartition(".")[2].lower())


def read_gemini_part(part: dict[str, Any], where: str) -> ContentBlock:
    """Read a camelCase part as text, an image, or a block that only Gemini has."""
    if "text" in part:
        text = expect_text(part["text"], f"{where}.text")
        rest = {key: value for key, value in part.items() if key != "text"}
        own = {GEMINI_FORMAT: make_storable(rest)} if rest else {}
        return validate_wire(TextBlock, {"type": "text", "text": text, **own}, where)
    url, rest = _read_image_part_url(part)
    if url is None:
        return validate_wire(
            DataBlock, {"type": _find_part_kind(part), GEMINI_FORMAT: make_storable(part)}, where
        )
    data: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if rest:
        data[GEMINI_FORMAT] = make_storable(rest)
    return validate_wire(DataBlock, data, where)


def _find_part_kind(part: Mapping[str, Any]) -> str:
    # A part has no `type`: the key that is present identifies it.
    return next((key for key in ("text", *_PART_KINDS) if key in part), "part")


def _read_image_part_url(part: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    # Only parts that `_build_image_part` restores exactly from the URL and the other keys.
    for key, names in (("inlineData", {"mimeType", "data"}), ("fileData", {"mimeType", "fileUri"})):
        inner = part.get(key)
        if not isinstance(inner, Mapping) or inner.keys() != names:
            continue
        kind = inner["mimeType"]
        if not isinstance(kind, str) or not kind.startswith("image/"):
            continue
        rest = {name: value for name, value in part.items() if name != key}
        if key == "inlineData":
            return build_data_url(kind, inner["data"]), rest
        url = inner["fileUri"]
        if not isinstance(url, str) or parse_data_url(url) or "mimeType" in rest:
            continue
        return url, rest if kind == _guess_image_type(url) else {**rest, "mimeType": kind}
    return None, part


def write_function_response(
    message: Message, own: Mapping[str, Any], where: str, dropped: list[Dropped]
) -> dict[str, Any]:
    """Return the object of a function response: the one it was read with, or wrapped text."""
    kept = get_namespace(own, "result").get("response")
    if isinstance(kept, Mapping):
        if message.content == _write_response_text(kept):
            return dict(kept)
        dropped.append(Dropped(f"{where}.gemini", "the response object of another text; left out"))
    content = message.content
    if content is None:
        return {}
    if isinstance(content, str):
        return {"output": content}
    for position, block in enumerate(content):
        at = f"{where}.content[{position}]"
        if not isinstance(block, TextBlock):
            dropped.append(Dropped(at, f"a response has no place for a `{block.type}`; left out"))
        else:
            report_extras(block.__pydantic_extra__, "", at, dropped)
    if len(content) > 1:
        dropped.append(Dropped(f"{where}.content", "the blocks' texts are written as one"))
    spoken = any(isinstance(block, TextBlock) for block in content)
    return {"output": message.text} if spoken else {}


def _write_response_text(response: Mapping[str, Any]) -> str | None:
    return to_json(dict(response)).decode() if response else None


def read_function_response(part: dict[str, Any], where: str) -> Message:
    """Read the function response in `part` as a tool message."""
    at = f"{where}.functionResponse"
    answer = expect_mapping(part["functionResponse"], at)
    given = answer.get("response")
    response = make_storable(dict(expect_mapping({} if given is None else given, f"{at}.response")))
    data: dict[str, Any] = {
        "role": "tool",
        "name": expect_text(answer.get("name"), f"{at}.name"),
        "tool_call_id": expect_optional_text(answer.get("id"), f"{at}.id"),
    }
    result: dict[str, Any] = {}
    if response.keys() == {"output"} and isinstance(response["output"], str):
        data["content"] = response["output"]
    elif response:
        data["content"] = _write_response_text(response)
        result["response"] = response
    known = ("id", "name", "response")
    beside = {
        "keys": {key: value for key, value in answer.items() if key not in known},
        "part": {key: value for key, value in part.items() if key != "functionResponse"},
    }
    result |= {name: make_storable(keys) for name, keys in beside.items() if keys}
    if result:
        data[GEMINI_FORMAT] = {"result": result}
    return validate_wire(Message, data, where)
