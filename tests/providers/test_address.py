"""Addresses: which are called, and what of them is shown."""

import pytest

from assay.errors import ConfigError
from assay.providers.address import percent_encode, resolve_address
from assay.types import Endpoint


def endpoint(api_base: str | None, provider: str = "openai") -> Endpoint:
    return Endpoint(provider=provider, model="m", api_base=api_base)


@pytest.mark.parametrize(
    ("api_base", "url"),
    [
        (None, "https://api.openai.com/v1/x"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/x"),
        ("http://[::1]:8000", "http://[::1]:8000/x"),
        ("https://me:pass@host/v1?api-version=2", "https://host/v1/x?api-version=2"),
        ("https://host/v1#part", "https://host/v1/x"),
    ],
)
def test_a_path_is_put_between_address_and_query(api_base: str | None, url: str) -> None:
    assert resolve_address(endpoint(api_base)).url("/x") == url


@pytest.mark.parametrize(
    "api_base",
    [
        "localhost:8000/v1",
        "ftp://host/v1",
        "file:///etc/passwd",
        "http://",
        "http://:80/",
        "http://host:port/v1",
        "http://host:99999/",
        "http://host:0/",
        "http://ho st/",
        "http://host\\@other/",
        "http://host/\r\nX: y",
        "http://[::1/v1",
        "http://a..b/v1",
        f"http://{'a' * 64}.example/v1",
    ],
)
def test_anything_else_is_refused_without_being_shown(api_base: str) -> None:
    with pytest.raises(ConfigError, match="not an http or https address") as caught:
        resolve_address(endpoint(api_base))

    assert api_base not in caught.value.message


def test_an_address_is_needed_where_the_provider_has_none() -> None:
    with pytest.raises(ConfigError, match="needs an `api_base`"):
        resolve_address(endpoint(None, "openai-compatible"))


def test_the_representation_holds_neither_user_nor_query() -> None:
    address = resolve_address(endpoint("https://me:pass@host/v1?key=abc"))

    assert repr(address) == "EndpointAddress(https://host/v1)"


def test_an_address_that_was_not_stored_is_not_replaced_by_the_providers() -> None:
    stored = endpoint("https://host/model@2/v1").to_dict()

    with pytest.raises(ConfigError, match="was not stored") as caught:
        resolve_address(Endpoint.from_dict(stored, api_key="k"))

    assert caught.value.hint is not None
    assert "api_base" in caught.value.hint


def test_what_is_ascii_is_sent_as_it_was_given() -> None:
    assert percent_encode("/a%20b?c=d+e&f=ä") == "/a%20b?c=d+e&f=%C3%A4"
