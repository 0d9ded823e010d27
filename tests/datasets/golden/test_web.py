"""Golden datasets over http: from a server here, and never from where they must not come."""

import asyncio
import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.datasets import FetchRules, GoldenDataset, fetch_golden
from assay.datasets.golden.access_rules import FileVersion
from assay.datasets.golden.addresses import read_address
from assay.datasets.golden.download import Download
from assay.datasets.golden.network import SocketGuard
from assay.datasets.golden.web import HttpFetch
from assay.errors import DatasetError, DatasetOutOfReach
from web_server import ROW, Diverted, Names, WebServer, serving

HERE = FetchRules(allow_private=True)


@pytest.fixture(scope="module")
def web() -> Iterator[WebServer]:
    with serving() as server:
        yield server


def fetched(uri: str, folder: Path, rules: FetchRules = HERE) -> GoldenDataset:
    return fetch_golden(uri, root=folder, cache=folder / "cache", rules=rules)


def refused(uri: str, folder: Path, rules: FetchRules = HERE) -> DatasetError:
    with pytest.raises(DatasetError) as caught:
        fetched(uri, folder, rules)
    assert list((folder / "cache").iterdir()) == []
    return caught.value


def test_a_dataset_is_fetched_with_its_digest_and_its_state(web: WebServer, tmp_path: Path) -> None:
    uri = web.put("/golden.json", ETag='"e1"', x_amz_version_id="v7")

    golden = fetched(uri, tmp_path)

    assert golden.path.read_bytes() == ROW
    assert golden.path.name == f"{hashlib.sha256(ROW).hexdigest()}.jsonl"
    assert (golden.uri, golden.etag, golden.version) == (uri, "e1", "v7")


def test_it_can_be_fetched_while_another_loop_runs(web: WebServer, tmp_path: Path) -> None:
    uri = web.put("/loop.jsonl")

    async def inside() -> GoldenDataset:
        return fetched(uri, tmp_path)

    assert asyncio.run(inside()).size == len(ROW)


def test_a_password_and_a_query_are_used_and_never_shown(web: WebServer, tmp_path: Path) -> None:
    uri = web.put("/private.jsonl").replace("//", "//user:secret@") + "?token=secret"

    golden = fetched(uri, tmp_path)

    path, headers = web.asked[-1]
    assert path == "/private.jsonl?token=secret"
    assert headers["Authorization"].startswith("Basic ")
    assert headers["Accept-Encoding"] == "identity"
    assert "secret" not in repr(golden)
    gone = uri.replace("private", "gone")
    assert "secret" not in str(refused(gone, tmp_path / "other"))


def test_a_redirect_is_followed_without_the_password(web: WebServer, tmp_path: Path) -> None:
    web.put("/there.jsonl")
    uri = web.redirect("/here", f"http://localhost:{web.port}/there.jsonl")

    fetched(uri.replace("//", "//user:secret@"), tmp_path)

    assert web.asked[-1][0] == "/there.jsonl"
    assert "Authorization" not in web.asked[-1][1]


@pytest.mark.parametrize(
    ("status", "kind", "said"),
    [
        (404, DatasetError, "the file does not exist (HTTP 404)"),
        (410, DatasetError, "the file does not exist (HTTP 410)"),
        (403, DatasetError, "access to the file is denied (HTTP 403)"),
        (206, DatasetError, "the server answered HTTP 206, not 200"),
        (429, DatasetOutOfReach, "the server answered HTTP 429"),
        (503, DatasetOutOfReach, "the server answered HTTP 503"),
    ],
)
def test_a_server_that_says_no_is_told(
    status: int, kind: type[DatasetError], said: str, web: WebServer, tmp_path: Path
) -> None:
    error = refused(web.put(f"/no{status}", status=status), tmp_path)

    assert type(error) is kind
    assert error.message == said


def test_bodies_that_are_too_large_cut_off_or_compressed_are_refused(
    web: WebServer, tmp_path: Path
) -> None:
    small = FetchRules(allow_private=True, max_bytes=20)
    declared = web.put("/large.jsonl")
    undeclared = web.put("/endless.jsonl", Content_Length="", Connection="close")
    cut = web.put("/cut.jsonl", Content_Length="1000")
    packed = web.put("/packed.jsonl", Content_Encoding="gzip")

    assert "the file has 47 bytes; at most 20 bytes" in refused(declared, tmp_path, small).message
    assert "at most 20" in refused(undeclared, tmp_path, small).message
    assert isinstance(refused(cut, tmp_path), DatasetOutOfReach)
    assert "the server compressed the file as 'gzip'" in refused(packed, tmp_path).message


def test_a_redirect_away_from_http_or_without_end_is_refused(
    web: WebServer, tmp_path: Path
) -> None:
    circle = web.redirect("/circle", "/circle")
    to_file = web.redirect("/file", "file:///etc/hostname")
    nowhere = web.put("/nowhere", status=302)

    assert "the server redirects more than 5 times" in refused(circle, tmp_path).message
    assert "which is not http" in refused(to_file, tmp_path).message
    assert "which is not http" in refused(nowhere, tmp_path).message


def test_a_server_that_is_not_there_is_out_of_reach(tmp_path: Path) -> None:
    with serving() as web:
        uri = web.put("/golden.jsonl")

    error = refused(uri, tmp_path)

    assert isinstance(error, DatasetOutOfReach)
    assert "the file cannot be fetched: ClientConnectorError" in error.message


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0x7f000001", "[::ffff:127.0.0.1]"])
def test_this_machine_is_not_asked_unless_someone_says_so(
    host: str, web: WebServer, tmp_path: Path
) -> None:
    before = len(web.asked)
    uri = web.put("/golden.jsonl").replace("127.0.0.1", host)

    error = refused(uri, tmp_path, FetchRules())

    assert "is a private address" in error.message
    assert error.hint is not None
    assert "--allow-private" in error.hint
    assert len(web.asked) == before


def test_a_redirect_to_a_clouds_own_address_is_refused(web: WebServer, tmp_path: Path) -> None:
    uri = web.redirect("/metadata", "http://169.254.169.254/latest/meta-data")

    error = refused(uri, tmp_path)

    assert "169.254.169.254 is an address of this machine or its cloud" in error.message
    assert error.hint is None


class Outside:
    """The server here in the place of others: names from a table, connections diverted."""

    def __init__(self, web: WebServer, *, allow_private: bool, **names: list[str]) -> None:
        self.diverted = Diverted(web.port)
        self.guard = SocketGuard(allow_private=allow_private, new_socket=self.diverted.new_socket)
        self.names = Names(**names)

    def fetch(self, uri: str) -> FileVersion:
        rules = FetchRules()
        download = Download(io.BytesIO(), shown=uri, max_bytes=1000)
        address = read_address(uri, rules)
        return asyncio.run(
            HttpFetch(address, download, rules, self.guard, resolver=self.names).run()
        )


def test_a_public_name_is_connected_to_at_the_address_that_was_judged(web: WebServer) -> None:
    web.put("/golden.jsonl")
    outside = Outside(web, allow_private=False, golden_example=["93.184.215.14"])

    outside.fetch("http://golden.example/golden.jsonl")

    assert outside.diverted.dialled == ["93.184.215.14"]


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "192.168.0.9"])
def test_a_name_of_a_private_address_is_never_dialled(address: str, web: WebServer) -> None:
    outside = Outside(web, allow_private=False, golden_example=[address])

    with pytest.raises(DatasetError, match="the connection is refused: "):
        outside.fetch("http://golden.example/golden.jsonl")

    assert outside.diverted.dialled == []


@pytest.mark.parametrize("allow_private", [True, False])
def test_a_public_server_cannot_send_us_to_a_private_one(
    allow_private: bool, web: WebServer
) -> None:
    web.redirect("/onward", "http://inner.example/golden.jsonl")
    names = {"golden_example": ["93.184.215.14"], "inner_example": ["10.0.0.1"]}
    outside = Outside(web, allow_private=allow_private, **names)

    with pytest.raises(DatasetError, match="the connection is refused: "):
        outside.fetch("http://golden.example/onward")

    assert outside.diverted.dialled == ["93.184.215.14"]


def test_a_name_that_changes_its_mind_is_judged_again(web: WebServer) -> None:
    web.redirect("/again", "/golden.jsonl")
    outside = Outside(web, allow_private=False, golden_example=["93.184.215.14", "127.0.0.1"])

    with pytest.raises(DatasetError, match=r"127\.0\.0\.1 is a private address"):
        outside.fetch("http://golden.example/again")

    assert outside.diverted.dialled == ["93.184.215.14"]


def test_a_name_that_is_not_there_is_out_of_reach(web: WebServer) -> None:
    expected = "the file cannot be fetched: ClientConnectorDNSError"
    with pytest.raises(DatasetOutOfReach, match=expected):
        Outside(web, allow_private=False).fetch("http://none.example/golden.jsonl")


def test_going_on_from_https_to_http_is_refused(web: WebServer) -> None:
    rules = FetchRules()
    address = read_address("https://golden.example/a", rules)
    download = Download(io.BytesIO(), shown="a", max_bytes=1)
    fetch = HttpFetch(address, download, rules, SocketGuard(allow_private=False))

    response = SimpleNamespace(headers={"Location": "http://golden.example/b"})

    with pytest.raises(DatasetError, match="the server redirects from https to http"):
        fetch._resolve_redirect("https://golden.example/a", response)  # type: ignore[arg-type]  # a part
