"""The options of `assay certify run` for the certificate and for the baseline manifest."""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from assay.certify import (
    IssueOptions,
    ManifestChange,
    Resource,
    compare_manifests,
    read_signing_key,
)
from assay.errors import ConfigError
from assay.types import Manifest

from .arguments import add_count
from .certify_diff import add_guard_options, format_manifest_changes
from .certify_keygen import add_passphrase_option, read_passphrase
from .output import print_message

# in-toto names algorithms by a word and digests in lower-case hexadecimal.
_ALGORITHM_AND_DIGEST = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31}):([0-9a-f]{8,256})")
_ISSUE_DEFAULTS = IssueOptions()


def add_issue_options(parser: ArgumentParser) -> None:
    """Declare the options for issuing certificates."""
    parser.add_argument(
        "--sign",
        type=Path,
        metavar="KEY.pem",
        help="sign the certificate with this key from `assay certify keygen`",
    )
    add_passphrase_option(parser, "the passphrase of the --sign key")
    add_count(
        parser,
        "--valid-days",
        "days for which the certificate is valid after the last call",
        default=_ISSUE_DEFAULTS.valid_days,
    )
    parser.add_argument(
        "--subject",
        type=parse_subject,
        action="append",
        default=[],
        metavar="NAME=ALGORITHM:DIGEST",
        help="also certify this artifact, such as an image (sha256) or a commit (gitCommit)",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="OLD.yaml",
        help="report the changes since this manifest before anything is run",
    )
    add_guard_options(parser)


def parse_subject(text: str) -> Resource:
    """Parse an artifact given by name and digest."""
    name, _, rest = text.rpartition("=")
    algorithm, value = parse_digest(rest)
    if not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=ALGORITHM:DIGEST")
    return Resource(name=name, digest={algorithm: value})


def format_subject(resource: Resource) -> str:
    """Format an artifact so that `parse_subject` reads it back."""
    ((algorithm, value),) = resource.digest.items()
    return f"{resource.name}={algorithm}:{value}"


def parse_digest(text: str) -> tuple[str, str]:
    """Parse an algorithm and a digest in lower-case hexadecimal, such as `sha256:...`."""
    found = _ALGORITHM_AND_DIGEST.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not ALGORITHM:DIGEST, such as sha256:0123abcd...")
    return found[1], found[2]


def build_issue_options(args: Namespace) -> IssueOptions:
    """Build the options for issuing. Raises `ConfigError` before anything is run."""
    if args.sign is not None and args.output is None:
        raise ConfigError(
            "--sign needs an output folder for the certificate", hint="pass -o FOLDER"
        )
    if args.output is not None:
        # Checked now: after the calls are paid for it would be too late.
        whole = args.output.absolute()
        existing = next(each for each in (whole, *whole.parents) if each.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise ConfigError("the output folder is not writable", where=str(args.output))
    if args.sign is None and args.passphrase_env is not None:
        raise ConfigError("--passphrase-env has no effect without --sign")
    key = None
    # The key is read before the run: a wrong passphrase must not cost a certification.
    if args.sign is not None:
        key = read_signing_key(args.sign, passphrase=read_passphrase(args))
    return IssueOptions(valid_days=args.valid_days, subjects=tuple(args.subject), key=key)


def compare_with_old_manifest(args: Namespace) -> tuple[ManifestChange, ...]:
    """Print the changes since `--baseline` to stderr and return them; none without the option."""
    if args.baseline is None:
        if args.no_weaken or args.no_move:
            raise ConfigError("--no-weaken and --no-move need --baseline OLD.yaml")
        return ()
    old, new = Manifest.load(args.baseline), Manifest.load(args.manifest)
    changes = compare_manifests(old, new, agent=args.agent)
    print_message("\n".join(format_manifest_changes(changes)))
    return changes
