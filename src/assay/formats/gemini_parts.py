"""The parts of Gemini contents: what is said or shown, and what a function answered."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import to_json

from assay.types import ContentBlock, DataBlock, Message, TextBlock

from .conversion import (
    Lost,
    mapping_at,
    namespace_of,
    optional_text_at,
    report_extras,
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

FORMAT = "gemini"

_CAMEL = {
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
_KINDS = ("inlineData", "fileData", "executableCode", "codeExecutionResult", "functionCall")
_IMAGE_TYPES = {
    "gif": "image/gif",
    "heic": "image/heic",
    "heif": "image/heif",
    "jpeg": "image/jpeg",
    "jpg": "image/jpeg",
    "png": "image/png",
    "webp": "image/webp",
}


def camel_part(part: object, where: str) -> dict[str, Any]:
    """`part` in camelCase. A key that is there in both spellings is left as it is."""
    camel = _camel(mapping_at(part, where))
    for key in ("inlineData", "fileData", "functionCall", "functionResponse"):
        if isinstance(camel.get(key), Mapping):
            camel[key] = _camel(mapping_at(camel[key], f"{where}.{key}"))
    return camel


def _camel(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key if _CAMEL.get(key, key) in data else _CAMEL.get(key, key): value
        for key, value in data.items()
    }


def write_parts(
    content: str | tuple[ContentBlock, ...] | None, where: str, lost: list[Lost]
) -> list[dict[str, Any]]:
    """Content as parts, reporting the blocks that there is no part for."""
    if content is None:
        return []
    if isinstance(content, str):
        return [{"text": content}]
    parts = (
        _write_part(block, f"{where}.content[{position}]", lost)
        for position, block in enumerate(content)
    )
    return [part for part in parts if part is not None]


def _write_part(block: ContentBlock, where: str, lost: list[Lost]) -> dict[str, Any] | None:
    extra = block.__pydantic_extra__ or {}
    own = namespace_of(extra, FORMAT)
    if isinstance(block, TextBlock):
        report_extras(extra, FORMAT, where, lost)
        return {**own, "text": block.text}
    url = image_address(block)
    if url is not None:
        part = _image_part(url, own)
        if part is not None:
            report_beside_address(block, FORMAT, where, lost)
            return part
    elif FORMAT in extra and _kind(own) == block.type:
        report_extras(extra, FORMAT, where, lost)
        return dict(own)
    lost.append(Lost(where, f"Gemini has no part for this `{block.type}`; left out"))
    return None


def _image_part(url: str, own: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of an image. Gemini must be told the type of one that it has to fetch."""
    rest = {key: value for key, value in own.items() if key != "mimeType"}
    if media := media_from_data_url(url):
        return {**rest, "inlineData": {"mimeType": media[0], "data": media[1]}}
    kind = own.get("mimeType") or _guessed_type(url)
    return {**rest, "fileData": {"mimeType": kind, "fileUri": url}} if kind else None


def _guessed_type(url: str) -> str | None:
    path = url.partition("?")[0].partition("#")[0]
    return _IMAGE_TYPES.get(path.rpartition(".")[2].lower())


def read_block(part: dict[str, Any], where: str) -> ContentBlock:
    """A part in camelCase as a text, an image, or a block that only Gemini has."""
    if "text" in part:
        text = text_at(part["text"], f"{where}.text")
        rest = {key: value for key, value in part.items() if key != "text"}
        own = {FORMAT: storable(rest)} if rest else {}
        return validated(TextBlock, {"type": "text", "text": text, **own}, where)
    url, rest = _address(part)
    if url is None:
        return validated(DataBlock, {"type": _kind(part), FORMAT: storable(part)}, where)
    data: dict[str, Any] = {"type": "image_url", "image_url": {"url": url}}
    if rest:
        data[FORMAT] = storable(rest)
    return validated(DataBlock, data, where)


def _kind(part: Mapping[str, Any]) -> str:
    """The type of a block that only Gemini has: the key that says what the part is."""
    return next((key for key in ("text", *_KINDS) if key in part), "part")


def _address(part: dict[str, Any]) -> tuple[str | None, dict[str, Any]]:
    """The URL of an image part and the other keys that make the same part of it again."""
    for key, names in (("inlineData", {"mimeType", "data"}), ("fileData", {"mimeType", "fileUri"})):
        inner = part.get(key)
        if not isinstance(inner, Mapping) or inner.keys() != names:
            continue
        kind = inner["mimeType"]
        if not isinstance(kind, str) or not kind.startswith("image/"):
            continue
        rest = {name: value for name, value in part.items() if name != key}
        if key == "inlineData":
            return data_url(kind, inner["data"]), rest
        url = inner["fileUri"]
        if not isinstance(url, str) or media_from_data_url(url) or "mimeType" in rest:
            continue
        return url, rest if kind == _guessed_type(url) else {**rest, "mimeType": kind}
    return None, part


def write_response(
    message: Message, own: Mapping[str, Any], where: str, lost: list[Lost]
) -> dict[str, Any]:
    """The object a function response needs: the one it was read with, or the text wrapped."""
    kept = namespace_of(own, "result").get("response")
    if isinstance(kept, Mapping):
        if message.content == _as_text(kept):
            return dict(kept)
        lost.append(Lost(f"{where}.gemini", "the response object of another text; left out"))
    content = message.content
    if content is None:
        return {}
    if isinstance(content, str):
        return {"output": content}
    for position, block in enumerate(content):
        at = f"{where}.content[{position}]"
        if not isinstance(block, TextBlock):
            lost.append(Lost(at, f"a response has no place for a `{block.type}`; left out"))
        else:
            report_extras(block.__pydantic_extra__, "", at, lost)
    if len(content) > 1:
        lost.append(Lost(f"{where}.content", "the blocks' texts are written as one"))
    spoken = any(isinstance(block, TextBlock) for block in content)
    return {"output": message.text} if spoken else {}


def _as_text(response: Mapping[str, Any]) -> str | None:
    return to_json(dict(response)).decode() if response else None


def read_result(part: dict[str, Any], where: str) -> Message:
    """The function response in `part` as a tool message."""
    at = f"{where}.functionResponse"
    answer = mapping_at(part["functionResponse"], at)
    given = answer.get("response")
    response = storable(dict(mapping_at({} if given is None else given, f"{at}.response")))
    data: dict[str, Any] = {
        "role": "tool",
        "name": text_at(answer.get("name"), f"{at}.name"),
        "tool_call_id": optional_text_at(answer.get("id"), f"{at}.id"),
    }
    result: dict[str, Any] = {}
    if response.keys() == {"output"} and isinstance(response["output"], str):
        data["content"] = response["output"]
    elif response:
        data["content"] = _as_text(response)
        result["response"] = response
    known = ("id", "name", "response")
    beside = {
        "keys": {key: value for key, value in answer.items() if key not in known},
        "part": {key: value for key, value in part.items() if key != "functionResponse"},
    }
    result |= {name: storable(keys) for name, keys in beside.items() if keys}
    if result:
        data[FORMAT] = {"result": result}
    return validated(Message, data, where)
