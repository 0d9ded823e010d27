"""`assay view`: look at runs and samples in a browser."""

import os
import secrets
import signal
import threading
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

from assay.errors import ConfigError, MissingExtra
from assay.providers import is_loopback
from assay.store import Store

from .arguments import add_flag
from .output import has_browser, print_lines, print_message
from .store_option import add_store_option, open_store

TOKEN_VARIABLE = "ASSAY_VIEW_TOKEN"
_USUAL_PORT = 4717
_SIGNAL_POLL_S = 0.1


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
    parser.add_argument(
        "--project",
        type=Path,
        metavar="FOLDER",
        help="show the certificates in this folder as well",
    )
    add_flag(parser, "--no-open", "do not open a browser")
    add_flag(
        parser,
        "--token",
        f"require a token, read from ${TOKEN_VARIABLE} or else generated and shown once; always "
        "required when the address is not a loopback one",
    )
    parser.add_argument(
        "--export",
        nargs="+",
        metavar="RUN",
        help="write a report of these runs as one HTML file instead, and compare them: run ids, "
        "unique prefixes, or `latest`",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="file to write with --export"
    )
    add_flag(parser, "--force", "overwrite the file if it exists")


def main(args: Namespace) -> int:
    """Serve the pages until interrupted. Exit status 0 after SIGINT or SIGTERM."""
    if (args.export is None) != (args.output is None):
        raise ConfigError(
            "--export and -o need each other", hint="assay view --export latest -o report.html"
        )
    if args.export is not None:
        return _export(args)
    if args.project is not None and not args.project.is_dir():
        raise ConfigError(f"--project {args.project} is not a folder")
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with open_store(args) as store:
        _serve(store, args, stop)
    return 0


def _export(args: Namespace) -> int:
    with _explain_missing_packages():
        from assay.web import check_report_target, write_static_report
    # Before anything is read: a large run takes seconds.
    check_report_target(args.output, force=args.force)
    with open_store(args) as store:
        size = write_static_report(store, args.export, args.output, force=args.force)
    print_lines([str(args.output)])
    print_message(f"{size / 1_000_000:.2f} MB; open it in a browser")
    return 0


@contextmanager
def _explain_missing_packages() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("assay"):
            raise
        raise MissingExtra.build(
            "view", by="`assay view`", package=error.name.partition(".")[0]
        ) from None


def _serve(store: Store, args: Namespace, stop: threading.Event) -> None:
    with _explain_missing_packages():
        from assay.web import ViewServer, ViewSettings
    token = os.environ.get(TOKEN_VARIABLE) or None
    if token is None and (args.token or not is_loopback(args.host)):
        token = secrets.token_urlsafe(24)

    def build_server(port: int) -> ViewServer:
        settings = ViewSettings(
            args.host, port=port, token=token, tokenizer=args.tokenizer, project=args.project
        )
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
        print_lines([address])
        print_message(f"showing {store.where}; press Ctrl-C to stop")
        if not args.no_open and has_browser():
            # In a thread: starting a browser can take seconds.
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        # In short waits: a signal that another thread receives, or that arrives just before the
        # wait, does not end it.
        while not stop.wait(_SIGNAL_POLL_S):
            pass
