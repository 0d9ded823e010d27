"""`assay runs import`: record the results of a bundle as runs."""

from argparse import SUPPRESS, ArgumentParser, Namespace
from pathlib import Path

from assay.datasets import Bundle
from assay.errors import ConfigError
from assay.store import Store

from .bundle_import import import_bundle
from .output import format_field, print_report
from .store_option import add_store_option, build_next_command, find_store_location


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("file", type=Path, metavar="FILE.tar.gz", help="bundle to import")
    add_store_option(parser, action=True)
    parser.add_argument(
        "--json", action="store_true", default=SUPPRESS, help="print one JSON object instead"
    )


def main(args: Namespace) -> int:
    """Record the samples; the code of the bundle is not run. Exit status 0."""
    if not args.file.is_file():
        raise ConfigError(f"the bundle {args.file} does not exist")
    bundle = Bundle.open(args.file)
    with Store.open(find_store_location(args)) as store:
        ids, where = import_bundle(bundle, store), store.where
    lines = [format_field("run", each) for each in ids]
    lines += ["next:", *(f"  {build_next_command(args, 'show', each)}" for each in ids)]
    print_report(args, lines, {"store": where, "bundle": str(args.file), "runs": ids})
    return 0
