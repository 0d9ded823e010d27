"""`assay certify keygen`: a key to sign certificates with, and the one to check them with."""

import os
from argparse import ArgumentParser, Namespace
from pathlib import Path

from assay.certify import generate_key
from assay.errors import ConfigError

from .exit_status import EXIT_PASS
from .terminal import print_json, sanitize_lines


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        required=True,
        metavar="KEY.pem",
        help="where the private key is written; the public key goes to KEY.pub.pem beside it",
    )
    add_passphrase_option(parser, "protects the private key")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def add_passphrase_option(parser: ArgumentParser, does: str) -> None:
    """Declare `--passphrase-env`: a passphrase itself is never an argument."""
    parser.add_argument(
        "--passphrase-env",
        metavar="NAME",
        help=f"environment variable with the passphrase that {does}",
    )


def read_passphrase(args: Namespace) -> str | None:
    """The passphrase in the variable that was named. Raises `ConfigError` where there is none."""
    name: str | None = args.passphrase_env
    if name is None:
        return None
    if not (found := os.environ.get(name)):
        raise ConfigError(f"the environment has no {name}", where="--passphrase-env")
    return found


def main(args: Namespace) -> int:
    """Exit status: 0 written, 2 not: there is a file already, or no place for one."""
    made = generate_key(args.output, passphrase=read_passphrase(args))
    if args.json:
        files = {"private": str(made.private), "public": str(made.public)}
        print_json({**files, "key_id": made.key_id})
        return EXIT_PASS
    lines = [
        f"private       {made.private}: keep it secret, sign with it",
        f"public        {made.public}: give it to whoever verifies",
        f"key id        {made.key_id}",
    ]
    print(sanitize_lines("\n".join(lines)))
    return EXIT_PASS
