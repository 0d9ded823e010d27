"""`assay certify keygen`: generate a key pair for signing and verifying certificates."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from assay.certify import generate_key
from assay.errors import ConfigError

from .arguments import add_report_options
from .exit_status import EXIT_PASS
from .output import format_field, print_report


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="KEY.pem",
        help="file for the private key; the public key is written to KEY.pub.pem beside it",
    )
    add_passphrase_option(parser, "a passphrase for the private key")
    add_report_options(parser)


def add_passphrase_option(parser: ArgumentParser, purpose: str) -> None:
    """Declare `--passphrase-env`: arguments are visible in process lists, variables are not."""
    parser.add_argument(
        "--passphrase-env", metavar="NAME", help=f"environment variable with {purpose}"
    )


def read_passphrase(args: Namespace) -> str | None:
    """Read the passphrase from the named variable. Raises `ConfigError` if it is not set."""
    name: str | None = args.passphrase_env
    if name is None:
        return None
    # An empty variable is refused too: it would leave the key unprotected.
    if not (found := os.environ.get(name)):
        raise ConfigError(f"the environment variable {name} is not set", where="--passphrase-env")
    return found


def main(args: Namespace) -> int:
    """Exit status: 0 written, 2 the file already exists or cannot be written."""
    made = generate_key(args.output, passphrase=read_passphrase(args))
    lines = [
        format_field("private", f"{made.private}: keep it secret; it signs certificates"),
        format_field("public", f"{made.public}: share it; it verifies certificates"),
        format_field("key id", made.key_id),
    ]
    files = {"private": str(made.private), "public": str(made.public)}
    print_report(args, lines, {**files, "key_id": made.key_id})
    return EXIT_PASS
