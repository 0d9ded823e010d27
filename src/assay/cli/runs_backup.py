"""`assay runs backup`: copy the store to a file while it is in use."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from .output import print_report
from .store_option import add_store_option, open_store


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="file for the copy; it must not exist yet"
    )
    add_store_option(parser, action=True)
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print one JSON object instead"
    )


def main(args: Namespace) -> int:
    """Copy the store. Exit status 0."""
    with open_store(args) as store:
        store.backup(args.file)
        where = store.where
    plain = {"store": where, "backup": str(args.file)}
    print_report(args, [f"copied {where} to {args.file}"], plain)
    return 0
