"""The server of the viewer: uvicorn in a thread of this process."""

import asyncio
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Self

import uvicorn

from assay.errors import ConfigError
from assay.export import load_tokenizer
from assay.providers import is_loopback
from assay.store import Store

from .app import build_app

_BACKLOG = 128
_SHUTDOWN_S = 2


@dataclass(frozen=True)
class ViewSettings:
    """Where a viewer listens, and the token it asks for."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 for any free port."""

    token: str | None = None
    """Required from every visitor. An address other than loopback needs one."""

    tokenizer: Path | None = None
    """A folder with a tokenizer, which turns recorded token ids into text."""

    project: Path | None = None
    """A folder with certificates to show."""

    def __post_init__(self) -> None:
        if not 0 <= self.port < 65_536:
            raise ConfigError(f"port must be between 0 and 65535, not {self.port!r}")
        if self.token is None and not is_loopback(self.host):
            raise ConfigError(f"a viewer on {self.host} can be reached by others and needs a token")
        if self.token is not None and len(self.token) < 16:
            raise ConfigError("the token must have at least 16 characters")
        if self.token is not None and not (self.token.isascii() and self.token.isprintable()):
            # Cookies and headers take no others.
            raise ConfigError(
                "the token must consist of printable ASCII characters",
                hint="assay generates one when none is given",
            )


class ViewServer:
    """Serves the pages of a store while its `with` block runs."""

    def __init__(self, store: Store, settings: ViewSettings | None = None) -> None:
        self._settings = settings or ViewSettings()
        given = self._settings
        app = build_app(
            store,
            host=given.host,
            token=given.token,
            decode_token=_load_decoder(given.tokenizer),
            project=given.project,
        )
        self._stopping: threading.Event = app.state.view.stopping
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_config=None,
                log_level="error",
                lifespan="off",
                ws="none",
                http="h11",
                server_header=False,
                # Behind a proxy of an attacker's choice these headers would name any address.
                proxy_headers=False,
                timeout_graceful_shutdown=_SHUTDOWN_S,
            )
        )
        self._socket: socket.socket | None = None
        self._thread = threading.Thread(target=self._serve, name="assay-view", daemon=True)

    @property
    def url(self) -> str:
        """The address of the first page, without the token."""
        assert self._socket is not None
        host = self._settings.host
        # A wildcard is not an address that a browser can open.
        name = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "::": "::1"}.get(host, host)
        name = f"[{name.strip('[]')}]" if ":" in name else name
        return f"http://{name}:{self._socket.getsockname()[1]}/"

    def start(self) -> None:
        """Listen and serve. Raises `ConfigError` if the address is not available."""
        self._socket = _listen(self._settings)
        self._thread.start()

    def stop(self) -> None:
        """End live streams, finish other requests and close the address."""
        self._stopping.set()
        self._server.should_exit = True
        self._thread.join()
        if self._socket is not None:
            self._socket.close()

    def __enter__(self) -> Self:
        if self._socket is None:
            self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _serve(self) -> None:
        # Not `Server.run`: signals belong to the thread that uses this object.
        assert self._socket is not None
        asyncio.run(self._server.serve([self._socket]))


def _load_decoder(folder: Path | None) -> Callable[[int], str] | None:
    if folder is None:
        return None
    tokenizer = load_tokenizer(folder)

    @lru_cache(maxsize=100_000)
    def decode(token: int) -> str:
        # Recorded ids may be those of another model.
        try:
            return str(tokenizer.decode([token]))
        except (OverflowError, ValueError, KeyError, IndexError, TypeError):
            return "\ufffd"

    return decode


def _listen(settings: ViewSettings) -> socket.socket:
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, settings.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"{settings.host}:{settings.port} cannot be listened on: {error.strerror or error}",
            hint="choose another --port, or leave it out",
        ) from None
