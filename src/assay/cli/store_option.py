"""The location of the store: `--store`, else the environment, else `.assay/` here."""

import os
from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from assay.store import Store

_STORE_HELP = "file or postgresql:// URL of the store (default: $ASSAY_STORE, else .assay/)"


def add_store_option(parser: ArgumentParser, *, action: bool = False) -> None:
    """Declare `--store`, on the command or again on an `action` of a command that has it."""
    # The default of an action would override a value that was given before the action.
    default = SUPPRESS if action else None
    parser.add_argument("--store", metavar="PATH|URL", default=default, help=_STORE_HELP)


def find_store_location(args: Namespace) -> str | Path | None:
    """Return the path or URL of the store; None for the default in the current folder.

    `ASSAY_STORE` is a whole path or URL, `ASSAY_HOME` a folder that replaces `.assay/`.
    """
    # An empty option counts as absent, as from an unset shell variable.
    if args.store:
        return str(args.store)
    if where := os.environ.get("ASSAY_STORE"):
        return where
    if home := os.environ.get("ASSAY_HOME"):
        return Path(home) / "assay.db"
    return None


def open_store(args: Namespace) -> Store:
    """Open the store for reading. Raises `StoreError` if it does not exist."""
    return Store.open(find_store_location(args), create=False)
