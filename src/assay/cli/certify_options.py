"""The options of `assay certify`, and the settings built from them."""

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from assay.certify import (
    CertifySettings,
    IssueOptions,
    ManifestChange,
    Resource,
    Runner,
    compare_manifests,
    read_signing_key,
)
from assay.datasets import FetchRules
from assay.errors import ConfigError
from assay.types import Manifest

from .arguments import add_count, add_flag, parse_seconds, parse_whole_number
from .certify_diff import add_guard_options, format_manifest_changes
from .certify_keygen import add_passphrase_option, read_passphrase
from .judge_backends import read_endpoint_option
from .output import print_message

# in-toto names algorithms by a word and digests in lower-case hexadecimal.
_ALGORITHM_AND_DIGEST = re.compile(r"([A-Za-z][A-Za-z0-9_]{0,31}):([0-9a-f]{8,256})")
_ISSUE_DEFAULTS = IssueOptions()
# Help texts show the defaults of the settings themselves.
_CERTIFY_DEFAULTS = CertifySettings()


def add_certify_options(parser: ArgumentParser) -> None:
    """Declare the agent, the dataset and the call options of a certification."""
    parser.add_argument(
        "manifest", metavar="MANIFEST.yaml", help="manifest that defines the agents"
    )
    parser.add_argument(
        "--agent", metavar="ID", help="certify one agent (default: all that have an `evaluation`)"
    )
    parser.add_argument(
        "--runner",
        metavar="RUNNER",
        help="test this instead of the manifest's own model: FILE.py:function, module:function, "
        "http://host/v1, cmd:COMMAND, a coding agent such as claude-code; PROVIDER:MODEL[@URL] or "
        "an endpoint's FILE.json runs the manifest's own agent on that endpoint",
    )
    parser.add_argument(
        "--tools", metavar="MODULE", help="module with a function for each inline tool of the agent"
    )
    parser.add_argument(
        "--judge",
        metavar="PROVIDER:MODEL[@URL]|FILE.json",
        help="endpoint of the judge; with a model other than the manifest's the result is not "
        "certifiable",
    )
    parser.add_argument(
        "--dataset", metavar="PATH|URI", help="use another dataset; the result is not certifiable"
    )
    add_count(parser, "--max-samples", "run N samples only; the result is not certifiable")
    add_flag(parser, "--allow-private", "allow a golden dataset on a private network address")
    add_flag(parser, "--allow-outside", "allow a golden dataset outside the manifest's folder")
    parser.add_argument("--seed", type=int, metavar="N", help="derive the seeds of calls from N")
    parser.add_argument(
        "--timeout-s",
        type=parse_seconds,
        default=_CERTIFY_DEFAULTS.timeout_s,
        metavar="SECONDS",
        help="fail an agent call that takes longer (default: %(default)g)",
    )
    add_count(
        parser,
        "--concurrency",
        "samples in progress at once",
        default=_CERTIFY_DEFAULTS.concurrency,
    )
    add_count(
        parser,
        "--latency-concurrency",
        "concurrent agent calls when latency is a criterion",
        default=_CERTIFY_DEFAULTS.latency_concurrency,
    )
    parser.add_argument(
        "--warmup",
        type=parse_whole_number,
        metavar="N",
        help="uncounted calls before the first measured one (default: 1 when latency is a "
        "criterion)",
    )


def build_certify_settings(args: Namespace) -> CertifySettings:
    """Build the settings from the options. Raises `ConfigError` for invalid ones."""
    runner: Runner | None = args.runner
    # Only an existing file: `x.json` may also be the end of a command or of a URL.
    if args.runner is not None and is_endpoint_file(args.runner):
        runner = read_endpoint_option(args.runner)
    return CertifySettings(
        runner=runner,
        tools=args.tools,
        judge=None if args.judge is None else read_endpoint_option(args.judge),
        dataset=args.dataset,
        max_samples=args.max_samples,
        seed=args.seed,
        timeout_s=args.timeout_s,
        concurrency=args.concurrency,
        latency_concurrency=args.latency_concurrency,
        warmup=args.warmup,
        fetch=FetchRules(allow_outside=args.allow_outside, allow_private=args.allow_private),
    )


def is_endpoint_file(text: str) -> bool:
    """Whether the value of a runner option is the JSON file of an endpoint."""
    return text.lower().endswith(".json") and Path(text).is_file()


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
