"""`assay view`: look at runs and samples in a browser."""

import os
import secrets
import signal
import sys
import threading
import webbrowser
from argparse import ArgumentParser, Namespace
from pathlib import Path
from urllib.parse import urlencode

from assay.errors import ConfigError, MissingExtra
from assay.providers import is_loopback
from assay.store import Store

from .arguments import add_flag
from .output import print_message
from .store_option import add_store_option, open_store

TOKEN_VARIABLE = "ASSAY_VIEW_TOKEN"
_USUAL_PORT = 4717


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    add_store_option(parser)
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="listen on this address (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument(
        "--port",
        type=int,
        help=f"listen on this port (default: {_USUAL_PORT} if it is free, else any free port)",
    )
    parser.add_argument(
        "--tokenizer",
        type=Path,
        metavar="FOLDER",
        help="show recorded tokens as text with this tokenizer (default: their ids)",
    )
    add_flag(parser, "--no-open", "do not open a browser")
    add_flag(
        parser,
        "--token",
        f"require a token, read from ${TOKEN_VARIABLE} or else generated and shown once; always "
        "required when the address is not a loopback one",
    )


def main(args: Namespace) -> int:
    """Serve the pages until interrupted. Exit status 0 after SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with open_store(args) as store:
        _serve(store, args, stop)
    return 0


def _serve(store: Store, args: Namespace, stop: threading.Event) -> None:
    try:
        from assay.web import ViewServer, ViewSettings
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("assay"):
            raise
        raise MissingExtra.build(
            "view", by="`assay view`", package=error.name.partition(".")[0]
        ) from None
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token is None and (args.token or not is_loopback(args.host)):
        token = secrets.token_urlsafe(24)

    def build_server(port: int) -> ViewServer:
        settings = ViewSettings(args.host, port=port, token=token, tokenizer=args.tokenizer)
        return ViewServer(store, settings)

    server = build_server(_USUAL_PORT if args.port is None else args.port)
    try:
        server.start()
    except ConfigError:
        if args.port is not None:
            raise
        server = build_server(0)
        server.start()
    with server:
        address = server.url + (f"?{urlencode({'token': token})}" if token is not None else "")
        # One line and nothing else: scripts read the address from stdout.
        print(address, flush=True)
        print_message(f"showing {store.where}; press Ctrl-C to stop")
        if not args.no_open and _has_browser():
            # In a thread: starting a browser can take seconds.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        stop.wait()


def _has_browser() -> bool:
    """Whether a browser window can appear in front of the user."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    if sys.platform in ("win32", "darwin"):
        return True
    # Without a display Python would start a browser for text in this terminal.
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
