"""Images and files inside messages: read from the record, checked, and never fetched."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote_to_bytes

from assay.types import DataBlock

from .page import PageModel

AttachmentKind = Literal["image", "text", "file", "remote", "unknown"]

MAX_IMAGE_BYTES = 8_000_000
"""Larger images are offered as a download and not shown."""

_MAX_PIXELS = 40_000_000
_MAX_DATA_CHARS = 100_000_000
_MAX_NAME_CHARS = 120
_MAX_PREVIEW_CHARS = 1000
_MAX_DEPTH = 3
_DATA_URL = re.compile(
    r"data:([\w.+-]+/[\w.+-]+)?((?:;[\w.+-]+=[^;,]{0,80})*)(;base64)?,", re.ASCII
)
# The first bytes of the types that a browser may show. SVG is left out: it is a document.
_IMAGE_SIGNATURES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml"}
)


class Attachment(PageModel):
    """An image or file of a message, as far as it may be shown."""

    block: int
    """The position of the block in the message."""

    kind: AttachmentKind
    type: str
    """The type of the block, such as `image_url`."""

    media_type: str | None = None
    name: str | None = None
    size: int | None = None
    """Bytes."""

    address: str | None = None
    """Of a remote file. It is shown as text and never loaded."""

    problem: str | None = None
    """Why it is not shown."""

    preview: str | None = None
    """The beginning of a text file."""


@dataclass(frozen=True)
class FileContent:
    """The decoded content of a block."""

    media_type: str
    content: bytes
    name: str | None


def read_attachment(block: DataBlock, position: int) -> Attachment:
    """Describe a block that is not text."""
    found = _find_media(block)
    fields: dict[str, Any] = {"block": position, "type": block.type[:_MAX_NAME_CHARS]}
    if found is None:
        return Attachment(kind="unknown", **fields)
    if found.data is None:
        return Attachment(kind="remote", address=found.address, name=found.name, **fields)
    try:
        file = _decode_media(found)
    except ValueError as error:
        return Attachment(kind="file", media_type=found.media_type, problem=str(error), **fields)
    fields |= {"media_type": file.media_type, "name": file.name, "size": len(file.content)}
    if file.media_type.startswith("image/") and file.media_type != "image/svg+xml":
        problem = find_image_problem(file)
        return Attachment(kind="image" if problem is None else "file", problem=problem, **fields)
    text = decode_text(file)
    if text is not None:
        return Attachment(kind="text", preview=text[:_MAX_PREVIEW_CHARS], **fields)
    return Attachment(kind="file", **fields)


def read_file(block: DataBlock) -> FileContent | None:
    """Return the decoded content of a block; None if the record does not contain it."""
    found = _find_media(block)
    if found is None or found.data is None:
        return None
    try:
        return _decode_media(found)
    except ValueError:
        return None


def decode_text(file: FileContent) -> str | None:
    """Return the text of a text file; None for other content."""
    kind = file.media_type
    # The source of an SVG is text like any other; as an image it could contain scripts.
    if not (kind.startswith("text/") or kind in _TEXT_TYPES or kind == "image/svg+xml"):
        return None
    try:
        return file.content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def find_image_problem(file: FileContent) -> str | None:
    """Return why an image is not shown; None if it may be."""
    signature = _IMAGE_SIGNATURES.get(file.media_type)
    if signature is None:
        return f"{file.media_type} is not shown"
    if signature.match(file.content) is None:
        return f"the content is not {file.media_type}"
    if len(file.content) > MAX_IMAGE_BYTES:
        return f"the image is larger than {MAX_IMAGE_BYTES // 1_000_000} MB"
    size = _read_pixels(file)
    if size is not None and size[0] * size[1] > _MAX_PIXELS:
        # A small file can unpack to gigabytes in the browser.
        return f"the image has {size[0]} × {size[1]} pixels"
    return None


def _read_pixels(file: FileContent) -> tuple[int, int] | None:
    content = file.content
    if file.media_type == "image/png":
        return int.from_bytes(content[16:20]), int.from_bytes(content[20:24])
    if file.media_type == "image/gif":
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    return None


@dataclass(frozen=True)
class _Media:
    media_type: str | None = None
    data: str | None = None
    """Base64, or a whole `data:` URL."""

    address: str | None = None
    name: str | None = None


def _find_media(block: DataBlock) -> _Media | None:
    """Look for data or an address in the fields of a block, in the layouts of all providers."""
    name = None
    for fields in _iterate_objects(block.model_extra or {}, _MAX_DEPTH):
        for key in ("filename", "file_name", "name", "title"):
            if name is None and isinstance(fields.get(key), str):
                name = fields[key][:_MAX_NAME_CHARS]
        texts = {key: value for key, value in fields.items() if isinstance(value, str)}
        for value in texts.values():
            if value[:5].lower() == "data:":
                return _Media(data=value, name=name)
        given = texts.get("media_type") or texts.get("mime_type") or texts.get("mimeType")
        data = texts.get("data") or texts.get("base64") or texts.get("file_data")
        if data is not None and (given or "format" in texts):
            return _Media(given or f"audio/{texts['format'][:20]}", data, name=name)
        for value in texts.values():
            if re.match(r"[a-z][a-z0-9+.-]{1,20}:", value, re.IGNORECASE):
                return _Media(address=value, name=name)
    return None


def _iterate_objects(value: Mapping[str, Any], depth: int) -> Iterator[dict[str, Any]]:
    yield dict(value)
    if depth:
        for inner in value.values():
            if isinstance(inner, Mapping):
                yield from _iterate_objects(inner, depth - 1)


def _decode_media(media: _Media) -> FileContent:
    data = media.data or ""
    if len(data) > _MAX_DATA_CHARS:
        raise ValueError(f"the data has more than {_MAX_DATA_CHARS // 1_000_000} MB")
    media_type, encoded = media.media_type, True
    if data[:5].lower() == "data:":
        match = _DATA_URL.match(data, 0, 400)
        if match is None:
            raise ValueError("the data URL is invalid")
        media_type, encoded = match[1] or "text/plain", match[3] is not None
        data = data[match.end() :]
    if not encoded:
        return FileContent((media_type or "").lower(), unquote_to_bytes(data), media.name)
    try:
        content = base64.b64decode("".join(data.split()).translate(_URL_ALPHABET), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("the data is not valid base64") from None
    return FileContent((media_type or "application/octet-stream").lower(), content, media.name)


_URL_ALPHABET = str.maketrans("-_", "+/")
