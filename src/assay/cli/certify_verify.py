"""`assay certify verify`: check a certificate against the manifest of the deployed agent."""

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path

from assay.certify import Verification, VerifyPolicy, read_verifying_key, verify_certificate
from assay.datasets import FetchRules
from assay.stats import format_plural
from assay.types import Endpoint

from .arguments import add_count, add_flag, add_report_options, parse_duration
from .certify_options import is_endpoint_file, parse_digest
from .exit_status import EXIT_FAIL, EXIT_PASS
from .judge_backends import read_endpoint_option
from .output import format_field, format_fields, print_report, sanitize_to_line

# Capitals for the one status that fails the verification.
_FINDING_LABELS = {"ok": "ok", "mismatch": "MISMATCH", "unchecked": "not checked"}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "certificate",
        type=Path,
        metavar="CERTIFICATE.json",
        help="certificate to verify, signed or unsigned",
    )
    parser.add_argument(
        "--manifest",
        type=Path,
        required=True,
        metavar="MANIFEST.yaml",
        help="manifest of the deployed agent",
    )
    parser.add_argument(
        "--agent", metavar="ID", help="verify this agent of a manifest with several"
    )
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="KEY.pub.pem",
        help="require a signature by this key (repeatable: by one of them)",
    )
    add_flag(parser, "--allow-unsigned", "accept a certificate without a verified signature")
    parser.add_argument(
        "--require-subject",
        type=parse_digest,
        action="append",
        default=[],
        metavar="ALGORITHM:DIGEST",
        help="require this artifact among those certified (repeatable)",
    )
    parser.add_argument(
        "--require-runner",
        metavar="RUNNER",
        help="require that the agent was tested like this, as `tested as` shows it; an "
        "endpoint's FILE.json requires all its settings",
    )
    parser.add_argument(
        "--max-age",
        type=parse_duration,
        metavar="DURATION",
        help="reject a certificate whose last measurement is older, such as 30d or 12h",
    )
    add_count(
        parser, "--max-tries", "allow at most N runs of the agent on the dataset in the store"
    )
    parser.add_argument(
        "--judge-host", metavar="HOST", help="require that the judge was called at this host"
    )
    parser.add_argument(
        "--judge-model",
        action="append",
        default=[],
        metavar="NAME",
        help="accept this name too in the answers of the judge's API (repeatable)",
    )
    add_flag(
        parser,
        "--refetch-dataset",
        "fetch the golden dataset and compare it with the one that was used",
    )
    add_flag(parser, "--allow-private", "allow a dataset on a private network address")
    add_flag(parser, "--allow-outside", "allow a dataset outside the manifest's folder")
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 verified, 1 not verified, 2 usage error, 3 the dataset is unreachable."""
    endpoint: Endpoint | None = None
    if args.require_runner is not None and is_endpoint_file(args.require_runner):
        endpoint = read_endpoint_option(args.require_runner)
    policy = VerifyPolicy(
        keys=tuple(read_verifying_key(path) for path in args.key),
        allow_unsigned=args.allow_unsigned,
        refetch_dataset=args.refetch_dataset,
        fetch=FetchRules(allow_outside=args.allow_outside, allow_private=args.allow_private),
        subjects=tuple(args.require_subject),
        runner=None if endpoint else args.require_runner,
        endpoint=endpoint,
        max_age=args.max_age,
        max_tries=args.max_tries,
        judge_host=args.judge_host,
        judge_models=tuple(args.judge_model),
    )
    found = verify_certificate(args.certificate, args.manifest, agent=args.agent, policy=policy)
    status = EXIT_PASS if found.verified else EXIT_FAIL
    print_report(
        args,
        format_verification(found, str(args.certificate)),
        {"exit_status": status, **json.loads(found.model_dump_json())},
    )
    return status


def format_verification(found: Verification, certificate: str) -> list[str]:
    """Format a line for each check, with the expected and found value of each mismatch."""
    fields = {"certificate": certificate}
    if (certified := found.certification) is not None:
        until = f"{certified.valid_until:%Y-%m-%d}"
        fields["agent"] = certified.agent.id
        fields["tested as"] = certified.agent.runner
        fields["result"] = f"{certified.verdict}, valid until {until}"
    lines = [*format_fields(fields, columns=66), ""]
    for finding in found.findings:
        label = _FINDING_LABELS[finding.status]
        if finding.status != "mismatch":
            lines.append(format_field(label, f"{finding.check}: {finding.found}", columns=66))
            continue
        # Not cut: the end of a digest or of an address may be the part that differs.
        lines.append(format_field(label, sanitize_to_line(finding.check)))
        lines.append(format_field("", f"  expected  {sanitize_to_line(finding.expected)}"))
        lines.append(format_field("", f"  found     {sanitize_to_line(finding.found)}"))
    if not found.verified:
        checks = format_plural(len(found.findings), "check")
        verdict = f"NOT VERIFIED: {len(found.mismatches)} of {checks}"
    elif found.signature == "signed":
        verdict = "VERIFIED, and signed"
    else:
        note = "unsigned" if found.signature == "unsigned" else "its signature was not checked"
        verdict = f"VERIFIED, but {note}: anybody could have written it"
    return [*lines, "", format_field("verdict", verdict, columns=66)]
