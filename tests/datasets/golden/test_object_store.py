"""Golden datasets in object stores: a real S3 API on this machine, and what others may say."""

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from assay.datasets import FetchRules, GoldenDataset, fetch_golden, read_golden
from assay.datasets.golden.addresses import read_address
from assay.datasets.golden.object_store import _explain_store_error
from assay.errors import DatasetError, DatasetOutOfReach, MissingExtra

ROWS = b'[{"id": "a", "question": "1+1?", "answer": "2"}]'


class Bucket:
    """A store with one bucket, `golden`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._put("golden", b"")

    def put(self, name: str, data: bytes = ROWS, *, access: str = "private") -> None:
        self._put(f"golden/{name}", data, access=access)

    def _put(self, path: str, data: bytes, *, query: str = "", access: str = "private") -> None:
        signed = "AWS4-HMAC-SHA256 Credential=testing/20260101/us-east-1/s3/aws4_request"
        headers = {"Content-Type": "application/octet-stream", "Authorization": signed}
        headers["x-amz-acl"] = access
        request = Request(f"{self.url}/{path}{query}", data=data, headers=headers, method="PUT")
        with urlopen(request, timeout=30):
            pass

    def keep_versions(self) -> None:
        enabled = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        self._put("golden", enabled, query="?versioning")


@pytest.fixture(scope="module")
def store() -> Iterator[Bucket]:
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    logs = logging.getLogger("werkzeug")
    level = logs.level
    logs.setLevel(logging.CRITICAL)
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield Bucket(f"http://{host}:{port}")
    finally:
        server.stop()
        logs.setLevel(level)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def fetched(uri: str, folder: Path, rules: FetchRules | None) -> GoldenDataset:
    return fetch_golden(uri, root=None, cache=folder, rules=rules)


def test_an_object_is_fetched_from_s3(store: Bucket, tmp_path: Path) -> None:
    store.put("qa/v1.json")

    golden = fetched("s3://golden/qa/v1.json", tmp_path, FetchRules(endpoint_url=store.url))

    assert golden.sha256 == hashlib.sha256(ROWS).hexdigest()
    assert golden.etag == hashlib.md5(ROWS).hexdigest()
    assert golden.version is None
    assert [sample.id for sample in read_golden(golden)] == ["a"]


def test_the_servers_address_may_come_from_the_environment(
    store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("env.json")
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)

    assert fetched("s3://golden/env.json", tmp_path, None).size == len(ROWS)


def test_the_version_of_an_object_is_kept(store: Bucket, tmp_path: Path) -> None:
    store.keep_versions()
    store.put("versioned.json")

    golden = fetched("s3://golden/versioned.json", tmp_path, FetchRules(endpoint_url=store.url))

    assert golden.version


def test_a_public_object_needs_no_credentials(
    store: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("public.json", access="public-read")
    store.put("private.json")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    rules = FetchRules(endpoint_url=store.url)

    assert fetched("s3://golden/public.json", tmp_path, rules).size == len(ROWS)
    with pytest.raises(DatasetError, match="access to the object is denied"):
        fetched("s3://golden/private.json", tmp_path, rules)


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("s3://golden/none.json", "the object or its bucket does not exist"),
        ("s3://no-such-bucket/a.json", "the object or its bucket does not exist"),
        ("s3://golden/folder", "the address is a folder"),
    ],
)
def test_what_is_not_there_is_told(uri: str, said: str, store: Bucket, tmp_path: Path) -> None:
    store.put("folder/a.json")

    with pytest.raises(DatasetError) as caught:
        fetched(uri, tmp_path, FetchRules(endpoint_url=store.url))

    assert type(caught.value) is DatasetError
    assert str(caught.value).startswith(f"{uri}: {said}")
    assert list(tmp_path.iterdir()) == []


def test_an_object_over_the_bound_is_refused(store: Bucket, tmp_path: Path) -> None:
    store.put("large.json")
    small = FetchRules(max_bytes=10, endpoint_url=store.url)

    with pytest.raises(DatasetError, match="the file has 48 bytes; at most 10 bytes are fetched"):
        fetched("s3://golden/large.json", tmp_path, small)
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_is_not_there_is_out_of_reach(tmp_path: Path) -> None:
    pytest.importorskip("s3fs")

    expected = "the object cannot be fetched: EndpointConnectionError"
    with pytest.raises(DatasetOutOfReach, match=expected):
        fetched("s3://golden/a.json", tmp_path, FetchRules(endpoint_url="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("uri", "package", "extra"),
    [
        ("s3://b/a.json", "s3fs", "s3"),
        ("gs://b/a.json", "gcsfs", "gcs"),
        ("az://b/a.json", "adlfs", "azure"),
        ("hf://datasets/org/name/a.json", "huggingface_hub", "hf"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    uri: str, package: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = {"fsspec": "spec"}
    monkeypatch.setattr("assay.datasets.golden.object_store.find_spec", there.get)

    with pytest.raises(MissingExtra, match=rf"`{package}`\n.*assay-eval\[{extra}\]"):
        fetched(uri, tmp_path, None)


def test_any_store_is_read_in_pieces(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/box/golden.json", ROWS)
    rules = FetchRules(allow_memory=True)

    assert fetched("memory://box/golden.json", tmp_path, rules).path.read_bytes() == ROWS
    with pytest.raises(DatasetError, match="the object or its bucket does not exist"):
        fetched("memory://box/none.json", tmp_path, rules)


class GatedRepoError(Exception):
    """Named as a hub's own."""


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (FileNotFoundError(), DatasetError, "the object or its bucket does not exist"),
        (PermissionError(), DatasetError, "access to the object is denied"),
        (GatedRepoError(), DatasetError, "access to the object is denied"),
        (ImportError("libssl"), DatasetError, "the package `huggingface_hub` cannot be loaded"),
        (
            TimeoutError("late"),
            DatasetOutOfReach,
            "the object cannot be fetched: TimeoutError: late",
        ),
        (RuntimeError("500"), DatasetOutOfReach, "the object cannot be fetched: RuntimeError: 500"),
    ],
)
def test_what_a_store_says_is_told_in_our_words(
    error: Exception, kind: type[DatasetError], said: str
) -> None:
    told = _explain_store_error(error, read_address("hf://datasets/o/n/a.json", FetchRules()))

    assert type(told) is kind
    assert told.message.startswith(said)
    assert told.where == "hf://datasets/o/n/a.json"
