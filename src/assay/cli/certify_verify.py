"""`assay certify verify`: whether a certificate still says what the manifest asks for."""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from datetime import timedelta
from pathlib import Path
from typing import Any

from assay.certify import (
    CertificateFinding,
    Verification,
    VerifyPolicy,
    read_verifying_key,
    verify_certificate,
)
from assay.datasets import FetchRules
from assay.stats import format_plural
from assay.types import Endpoint

from .certify_issue import parse_digest
from .eval_overrides import count
from .exit_status import EXIT_FAIL, EXIT_PASS
from .judge_backends import read_endpoint_option
from .terminal import cut, print_json, sanitize_lines, sanitize_to_line

_FINDING_LABELS = {"ok": "ok", "mismatch": "MISMATCH", "unchecked": "not checked"}

_DURATION_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument(
        "certificate", type=Path, metavar="CERTIFICATE.json", help="signed or not signed"
    )
    parser.add_argument(
        "--manifest", type=Path, required=True, metavar="MANIFEST.yaml", help="of what is deployed"
    )
    parser.add_argument("--agent", metavar="ID", help="which one, where the manifest has several")
    parser.add_argument(
        "--key",
        type=Path,
        action="append",
        default=[],
        metavar="KEY.pub.pem",
        help="whoever signed it must have the private half; of several, one is enough",
    )
    parser.add_argument(
        "--allow-unsigned",
        action="store_true",
        help="let the content alone decide, whoever wrote it",
    )
    parser.add_argument(
        "--require-subject",
        type=parse_digest,
        action="append",
        default=[],
        metavar="ALGORITHM:DIGEST",
        help="this artifact must be among those certified",
    )
    parser.add_argument(
        "--require-runner",
        metavar="RUNNER",
        help="the agent must have been tested like this, as `tested as` shows it; an endpoint's "
        "FILE.json must have all its settings",
    )
    parser.add_argument(
        "--max-age",
        type=parse_duration,
        metavar="DURATION",
        help="the last measurement must not be older, such as 30d or 12h",
    )
    parser.add_argument(
        "--max-tries",
        type=count,
        metavar="N",
        help="the store must have had at most N runs of the agent on the dataset",
    )
    parser.add_argument(
        "--judge-host", metavar="HOST", help="the judge must have been asked at this host"
    )
    parser.add_argument(
        "--judge-model",
        action="append",
        default=[],
        metavar="NAME",
        help="the judge's API may also have answered under this name",
    )
    _add_refetch_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def _add_refetch_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--refetch-dataset",
        action="store_true",
        help="fetch the golden dataset and compare it with the one that was used",
    )
    parser.add_argument(
        "--allow-private", action="store_true", help="let it be on this machine's network"
    )
    parser.add_argument(
        "--allow-outside", action="store_true", help="let it be outside of the manifest's folder"
    )


def main(args: Namespace) -> int:
    """Exit status: 0 verified, 1 not, 2 no certificate or no manifest, 3 the dataset is away."""
    endpoint = read_required_endpoint(args.require_runner)
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
    if args.json:
        print_json({"exit_status": status, **_verification_to_dict(found)})
    else:
        print(sanitize_lines("\n".join(format_verification(found, str(args.certificate)))))
    return status


def parse_duration(text: str) -> timedelta:
    """`30d`, `12h`, `90m`, `2w`: a length of time."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None or not int(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a duration such as 30d, 12h or 2w")
    return int(found[1]) * _DURATION_UNITS[found[2]]


def read_required_endpoint(runner: str | None) -> Endpoint | None:
    """The endpoint that `--require-runner` names by its file; None for other runners."""
    if runner is None or not runner.lower().endswith(".json") or not Path(runner).is_file():
        return None
    return read_endpoint_option(runner)


def format_verification(found: Verification, certificate: str) -> list[str]:
    """A line for each check, and what is expected and found of each that does not match."""
    lines = [_format_verification_line("certificate", certificate)]
    if (said := found.certification) is not None:
        until = f"{said.valid_until:%Y-%m-%d}"
        lines += [
            _format_verification_line("agent", said.agent.id),
            _format_verification_line("tested as", said.agent.runner),
            _format_verification_line("result", f"{said.verdict}, valid until {until}"),
        ]
    lines.append("")
    for finding in found.findings:
        lines += _format_verification_finding(finding)
    return [*lines, "", _format_verification_line("verdict", _format_verification_verdict(found))]


def _format_verification_finding(finding: CertificateFinding) -> list[str]:
    said = _FINDING_LABELS[finding.status]
    if finding.status != "mismatch":
        return [_format_verification_line(said, f"{finding.check}: {finding.found}")]
    return [
        f"{said:<14}{sanitize_to_line(finding.check)}",
        f"{'':<14}  expected  {sanitize_to_line(finding.expected)}",
        f"{'':<14}  found     {sanitize_to_line(finding.found)}",
    ]


def _format_verification_verdict(found: Verification) -> str:
    if not found.verified:
        return f"NOT VERIFIED: {len(found.mismatches)} of {format_plural(len(found.findings), 'check')}"
    if found.signature == "signed":
        return "VERIFIED, and signed"
    return f"VERIFIED, but {_SIGNATURE_NOTES[found.signature]}: anybody could have written it"


_SIGNATURE_NOTES = {"unsigned": "unsigned", "not checked": "its signature was not checked"}


def _verification_to_dict(found: Verification) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(found.model_dump_json())
    return shown


def _format_verification_line(label: str, text: str) -> str:
    return f"{label:<14}{cut(text, 66)}"
