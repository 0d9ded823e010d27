"""Addresses of golden datasets: which are taken, what is shown of them, and which are refused."""

import pytest

from assay.datasets.golden.access_rules import FetchRules
from assay.datasets.golden.addresses import read_address, redact_uri
from assay.errors import DatasetError


@pytest.mark.parametrize(
    ("uri", "scheme", "text"),
    [
        ("golden.jsonl", "file", "golden.jsonl"),
        ("./a/b.json", "file", "./a/b.json"),
        ("C:/a.json", "file", "C:/a.json"),
        ("file:///a%20b.json", "file", "/a b.json"),
        ("file://localhost/a.json", "file", "/a.json"),
        ("FILE:a.json", "file", "a.json"),
        ("https://h/a.json?x=1", "https", "https://h/a.json?x=1"),
        ("http://[::1]:80/a.json", "http", "http://[::1]:80/a.json"),
        ("s3://bucket/a/b.json", "s3", "s3://bucket/a/b.json"),
        ("gcs://bucket/b.json", "gcs", "gs://bucket/b.json"),
        ("abfs://box/b.json", "abfs", "az://box/b.json"),
        ("hf://datasets/org/name@main/b.json", "hf", "hf://datasets/org/name@main/b.json"),
    ],
)
def test_known_schemes_are_taken(uri: str, scheme: str, text: str) -> None:
    address = read_address(uri, FetchRules())

    assert (address.scheme, address.text) == (scheme, text)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("", "'' is not a valid address"),
        ("  ", "is not a valid address"),
        ("a\x1b[2Jb", "is not a valid address"),
        ("simplecache::file:///etc/hostname", "the address is a chain of several"),
        ("s3://b/k::http://h/x", "the address is a chain of several"),
        ("local:///etc/hostname", "the scheme 'local' is not supported"),
        ("data:,x", "the scheme 'data' is not supported"),
        ("memory://a.json", "the scheme 'memory' is not supported"),
        ("ftp://h/x", "the scheme 'ftp' is not supported\n.*supported are a path, file:, http:"),
        ("github://org:repo@main/x", "the scheme 'github' is not supported"),
        ("file://host/share/x", "the address of a file must not have a host"),
        ("file:///a?b", "the address of a file must not have a host"),
        ("file:", "the address has no path"),
        ("http:///x", "the address has no host"),
        ("http://[1:2/x", "the address is invalid: "),
        ("s3://bucket", "the address does not name an object"),
        ("s3://bucket/", "the address does not name an object"),
        ("s3://bucket/../other/x", "the address does not name an object"),
        ("s3:///key", "the address must name a bucket and an object only"),
        ("s3://bucket/x?versionId=1", "the address must name a bucket and an object only"),
        ("s3://key:secret@bucket/x", "the address must name a bucket and an object only"),
        ("az://box@evil.example/x", "the address must name a bucket and an object only"),
    ],
)
def test_anything_else_is_refused(uri: str, said: str) -> None:
    with pytest.raises(DatasetError, match=f"(?s){said}"):
        read_address(uri, FetchRules())


def test_memory_is_a_place_for_tests_that_say_so() -> None:
    assert read_address("memory://a/b.json", FetchRules(allow_memory=True)).scheme == "memory"


@pytest.mark.parametrize(
    "uri",
    [
        "https://user:secret@h/a.json?token=secret#secret",
        "s3://secret:secret@bucket/a.json",
        "az://secret@h/a.json",
        "ftp://secret@h/a?secret",
        "x::https://secret@h/a?secret",
    ],
)
def test_what_is_shown_of_an_address_has_no_secrets(uri: str) -> None:
    try:
        shown = read_address(uri, FetchRules()).shown
    except DatasetError as error:
        shown = str(error)

    assert "secret" not in shown
    assert "secret" not in redact_uri("https://secret@[h/?secret")
