"""The options of `assay certify run` about the certificate, and about the manifest's own past."""

import os
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from assay.certify import Issuing, ManifestChange, Resource, compare_manifests, read_signing_key
from assay.errors import ConfigError
from assay.types import Manifest

from .certify_diff import add_guard_options, change_lines
from .certify_keygen import add_passphrase_option, passphrase_from
from .eval_overrides import count
from .terminal import plain_lines

_DIGEST = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31}):([0-9a-f]{8,256})")
_DEFAULTS = Issuing()


def add_issuing_options(parser: ArgumentParser) -> None:
    """Declare how certificates are issued."""
    parser.add_argument(
        "--sign",
        type=Path,
        metavar="KEY.pem",
        help="sign the certificate with this key, which `assay certify keygen` makes",
    )
    add_passphrase_option(parser, "the key of --sign has")
    parser.add_argument(
        "--valid-days",
        type=count,
        default=_DEFAULTS.valid_days,
        metavar="N",
        help="how long the certificate holds after the last call (default: %(default)s)",
    )
    parser.add_argument(
        "--subject",
        type=subject,
        action="append",
        default=[],
        metavar="NAME=ALGORITHM:DIGEST",
        help="also certify this artifact, such as an image (sha256) or a commit (gitCommit)",
    )
    parser.add_argument(
        "--baseline",
        type=Path,
        metavar="OLD.yaml",
        help="tell what changed since this manifest, before anything is run",
    )
    add_guard_options(parser)


def subject(text: str) -> Resource:
    """An artifact by name and digest."""
    name, _, rest = text.rpartition("=")
    algorithm, value = digest(rest)
    if not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=ALGORITHM:DIGEST")
    return Resource(name=name, digest={algorithm: value})


def subject_words(resource: Resource) -> str:
    """What `subject` reads."""
    ((algorithm, value),) = resource.digest.items()
    return f"{resource.name}={algorithm}:{value}"


def digest(text: str) -> tuple[str, str]:
    """`sha256:...`, `gitCommit:...`: an algorithm and a digest in lower-case hexadecimal."""
    found = _DIGEST.fullmatch(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is not ALGORITHM:DIGEST, such as sha256:0123abcd...")
    return found[1], found[2]


def issuing_from(args: Namespace) -> Issuing:
    """How certificates are issued. Raises `ConfigError` before anything is run."""
    if args.sign is not None and args.output is None:
        raise ConfigError("there is no place for what --sign signs", hint="give -o FOLDER")
    if args.output is not None:
        _check_place(args.output)
    if args.sign is None and args.passphrase_env is not None:
        raise ConfigError("--passphrase-env is for the key of --sign")
    key = None
    if args.sign is not None:
        key = read_signing_key(args.sign, passphrase=passphrase_from(args))
    return Issuing(valid_days=args.valid_days, subjects=tuple(args.subject), key=key)


def _check_place(folder: Path) -> None:
    """Refuse now what could not be written to after everything was paid for."""
    whole = folder.absolute()
    there = next(each for each in (whole, *whole.parents) if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ConfigError("nothing can be written there", where=str(folder))


def changes_since_baseline(args: Namespace) -> tuple[ManifestChange, ...]:
    """What changed since `--baseline`, told on stderr. Nothing where none is given."""
    if args.baseline is None:
        if args.no_weaken or args.no_move:
            raise ConfigError("--no-weaken and --no-move need --baseline OLD.yaml")
        return ()
    old, new = Manifest.load(args.baseline), Manifest.load(args.manifest)
    changes = compare_manifests(old, new, agent=args.agent)
    print(plain_lines("\n".join(change_lines(changes))), file=sys.stderr)
    return changes
