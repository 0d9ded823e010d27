"""Addresses of images: taken apart only where they can be put together again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.formats.conversion import Dropped
from assay.formats.media import build_data_url, get_image_url, parse_data_url, report_image_extras
from message_strategies import data_block, text_block, words


@given(st.from_regex(r"[a-z]+/[a-z0-9.+-]+", fullmatch=True), words)
def test_a_data_url_is_taken_apart_into_what_it_was_made_of(kind: str, data: str) -> None:
    url = build_data_url(kind, data)

    assert url is not None
    assert parse_data_url(url) == (kind, data)


@pytest.mark.parametrize(
    ("kind", "data"), [("image", ""), ("image/png;x", ""), (5, ""), ("a/b", 5)]
)
def test_what_could_not_be_taken_apart_again_has_no_data_url(kind: object, data: object) -> None:
    assert build_data_url(kind, data) is None


@pytest.mark.parametrize("url", ["", "https://example.org", "data:,x", "data:text/plain,x"])
def test_other_urls_hold_no_media(url: str) -> None:
    assert parse_data_url(url) is None


def test_only_an_image_part_with_a_url_has_an_address() -> None:
    assert get_image_url(data_block(type="image_url", image_url={"url": "u"})) == "u"
    assert get_image_url(data_block(type="image_url", image_url={"url": 5})) is None
    assert get_image_url(data_block(type="image_url", image_url="u")) is None
    assert get_image_url(data_block(type="image", image_url={"url": "u"})) is None
    assert get_image_url(text_block(text="u")) is None


def test_what_an_image_says_beside_its_address_is_reported() -> None:
    dropped: list[Dropped] = []
    image = {"url": "u", "detail": "low"}
    block = data_block(type="image_url", image_url=image, note=1, anthropic={"a": 1})

    report_image_extras(block, "anthropic", "here", dropped)

    assert [loss.where for loss in dropped] == ["here.note", "here.image_url.detail"]
