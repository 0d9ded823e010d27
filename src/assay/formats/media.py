"""Images in messages: all formats are read as OpenAI's `image_url` part."""

import re
from collections.abc import Mapping
from typing import Any

from assay.types import ContentBlock, DataBlock

from .conversion import Dropped, report_extras

# Strict: a `data:` URL with other parameters could not be restored from type and data alone.
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+")
_DATA_URL = re.compile(r"data:([A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+);base64,")


def parse_data_url(url: str) -> tuple[str, str] | None:
    """Return the media type and base64 data of a `data:` URL, or None for other URLs."""
    match = _DATA_URL.match(url)
    return (match[1], url[match.end() :]) if match else None


def build_data_url(media_type: object, data: object) -> str | None:
    """Return the `data:` URL that `parse_data_url` reads, or None for invalid values."""
    if isinstance(data, str) and isinstance(media_type, str) and _MEDIA_TYPE.fullmatch(media_type):
        return f"data:{media_type};base64,{data}"
    return None


def get_image_url(block: ContentBlock) -> str | None:
    """Return the URL of an `image_url` part, or None for another block."""
    extra = block.__pydantic_extra__
    if not extra or block.type != "image_url" or not isinstance(block, DataBlock):
        return None
    image = extra.get("image_url")
    url = image.get("url") if isinstance(image, Mapping) else None
    return url if isinstance(url, str) else None


def report_image_extras(block: ContentBlock, own: str, where: str, dropped: list[Dropped]) -> None:
    """Report the fields of an `image_url` part other than its URL, such as `detail`."""
    extra: Mapping[str, Any] = block.__pydantic_extra__ or {}
    rest = {key: value for key, value in extra.items() if key != "image_url"}
    report_extras(rest, own, where, dropped)
    details = {key: value for key, value in extra["image_url"].items() if key != "url"}
    report_extras(details, "", f"{where}.image_url", dropped)
