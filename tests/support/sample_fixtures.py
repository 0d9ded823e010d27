"""Fixtures of the page of a sample: a store with all kinds of samples, and its viewer."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from assay.store import Store
    from assay.web import ViewServer


@pytest.fixture(scope="session")
def sample_store(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Store]":
    """A store with the runs of `recorded_samples`. Tests may only add labels."""
    from assay.store import Store
    from recorded_samples import record_samples

    with Store.open(tmp_path_factory.mktemp("samples") / "assay.db") as store:
        record_samples(store)
        yield store


@pytest.fixture
def empty_store(tmp_path: Path) -> "Iterator[Store]":
    """A store of its own, without runs."""
    from assay.store import Store

    with Store.open(tmp_path / "assay.db") as store:
        yield store


@dataclass(frozen=True)
class SampleViewer:
    """A viewer with addresses of samples."""

    server: "ViewServer"
    store: "Store"

    def path(self, sample_id: str, run: str = "samples-1", repeat: int = 0) -> str:
        """The path of the page of a sample."""
        from assay.web.sample_page import build_sample_address

        rows = self.store.run(run).results(sample_id=sample_id)
        return build_sample_address(run, next(row.key for row in rows if row.repeat == repeat))

    def url(self, sample_id: str, extra: str = "", run: str = "samples-1") -> str:
        return self.server.url.rstrip("/") + self.path(sample_id, run) + extra

    def get(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an address."""
        return self.send(urllib.request.Request(self.server.url.rstrip("/") + path))

    def text(self, sample_id: str, extra: str = "", run: str = "samples-1") -> str:
        """The page of a sample as HTML."""
        status, _, body = self.get(self.path(sample_id, run) + extra)
        assert status == 200, body
        return body.decode()

    def json(self, sample_id: str, extra: str = "", run: str = "samples-1") -> Any:
        """The page of a sample as JSON."""
        status, headers, body = self.get(f"/api{self.path(sample_id, run)}{extra}")
        assert (status, headers["content-type"]) == (200, "application/json"), body
        return json.loads(body)

    def send(self, request: urllib.request.Request) -> tuple[int, dict[str, str], bytes]:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, dict(answer.headers), answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read()


@pytest.fixture(scope="session")
def sample_viewer(sample_store: "Store") -> Iterator[SampleViewer]:
    """A viewer of `sample_store` on a free port."""
    from assay.web import ViewServer

    with ViewServer(sample_store) as server:
        yield SampleViewer(server, sample_store)
