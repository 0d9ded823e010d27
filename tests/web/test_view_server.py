"""The server: its address, and that stopping ends everything."""

import threading
import urllib.request
from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.store import Store
from assay.web import ViewServer, ViewSettings
from recorded_pages import record_run, total


def test_a_port_in_use_is_refused(viewer: ViewServer, page_store: Store) -> None:
    port = int(viewer.url.rstrip("/").rpartition(":")[2])

    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:\d+ cannot be listened on"):
        ViewServer(page_store, ViewSettings(port=port)).start()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_a_wrong_port_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match="port must be between"):
        ViewSettings(port=port)


@pytest.mark.parametrize("token", ["short", "п" * 20, "x" * 20 + "\n"])
def test_a_token_that_no_browser_could_send_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="the token must"):
        ViewSettings(token=token)


def test_a_wildcard_has_an_address_to_open(page_store: Store) -> None:
    with ViewServer(page_store, ViewSettings(host="0.0.0.0", token="x" * 20)) as server:
        assert server.url.startswith("http://127.0.0.1:")


def test_stopping_ends_live_streams(tmp_path: Path) -> None:
    with Store.open(tmp_path / "assay.db") as store:
        record_run(store, "live", [total(0, 0)], finish=False)
        server = ViewServer(store)
        server.start()
        stream = urllib.request.urlopen(f"{server.url}api/events", timeout=60)
        assert stream.readline().startswith(b"retry:")
        reader = threading.Thread(target=stream.read)
        reader.start()

        server.stop()
        reader.join(60)

        assert not reader.is_alive()
        stream.close()
