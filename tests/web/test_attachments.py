"""Images and files of messages: shown from the record only, and checked before."""

from typing import Any

import pytest

from assay.types import DataBlock
from assay.web.attachments import MAX_IMAGE_BYTES, Attachment, read_attachment, read_file
from recorded_samples import SVG, data_url, png


def read(**fields: Any) -> Attachment:
    return read_attachment(DataBlock(**{"type": "image_url", **fields}), 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"image_url": {"url": data_url(png(), "image/png")}},
        {"image_url": data_url(png(), "image/png")},
        {"source": {"type": "base64", "media_type": "image/png", "data": data_url(png(), "")[13:]}},
        {"inlineData": {"mimeType": "image/png", "data": data_url(png(), "")[13:]}},
    ],
)
def test_an_image_is_found_in_the_layouts_of_all_providers(fields: dict[str, Any]) -> None:
    found = read(**fields)

    assert (found.kind, found.media_type, found.size) == ("image", "image/png", len(png()))


@pytest.mark.parametrize(
    ("content", "media_type", "problem"),
    [
        (b"<script>alert(1)</script>", "image/png", "the content is not image/png"),
        (b"BM....", "image/bmp", "image/bmp is not shown"),
        (png() + b"\0" * MAX_IMAGE_BYTES, "image/png", "the image is larger than 8 MB"),
        (png(60_000, 1000), "image/png", "the image has 60000 × 1000 pixels"),
        (b"GIF89a" + b"\xff" * 6, "image/gif", "the image has 65535 × 65535 pixels"),
    ],
)
def test_other_content_is_not_shown_as_an_image(
    content: bytes, media_type: str, problem: str
) -> None:
    found = read(image_url={"url": data_url(content, media_type)})

    assert (found.kind, found.problem) == ("file", problem)


def test_a_text_file_is_text_and_so_is_the_source_of_an_svg() -> None:
    csv = read(type="file", file={"file_data": data_url(b"a,b", "text/csv"), "filename": "t.csv"})
    svg = read(image_url={"url": data_url(SVG, "image/svg+xml")})

    assert (csv.kind, csv.name, csv.preview) == ("text", "t.csv", "a,b")
    assert (svg.kind, svg.preview) == ("text", SVG.decode())


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:9/x.png", "file:///etc/passwd", "javascript:alert(1)"]
)
def test_an_address_is_never_loaded(address: str) -> None:
    block = DataBlock(type="image_url", image_url={"url": address})

    assert read_attachment(block, 0).kind == "remote"
    assert read_file(block) is None


@pytest.mark.parametrize("url", ["data:image/png;base64,§§§", "data:" + "x" * 500])
def test_damaged_data_is_named(url: str) -> None:
    found = read(image_url={"url": url})

    assert found.kind == "file"
    assert found.problem in ("the data is not valid base64", "the data URL is invalid")


def test_a_block_without_data_is_unknown() -> None:
    assert read(type="hologram", depth=3).kind == "unknown"
