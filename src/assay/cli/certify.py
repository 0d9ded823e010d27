"""`assay certify`: certify an agent against its manifest."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from . import certify_diff, certify_keygen, certify_plan, certify_run, certify_verify
from .arguments import Command, add_actions

CERTIFY_ACTIONS: dict[str, tuple[Command, str]] = {
    "plan": (
        certify_plan,
        "show the calls, the provable criteria and the cost of a certification; makes no calls",
    ),
    "run": (certify_run, "run a certification and record it"),
    "verify": (certify_verify, "verify a certificate against the manifest of the deployed agent"),
    "diff": (certify_diff, "show the changes between two manifests, and which of them weaken it"),
    "keygen": (certify_keygen, "generate a key pair for signing certificates"),
}
"""Each action is a module of its own, with `configure` and `main` like a command."""


def configure(parser: ArgumentParser) -> None:
    """Declare the actions of the command."""
    add_actions(parser, CERTIFY_ACTIONS)


def main(args: Namespace) -> int:
    """Run the action; each has its own exit status."""
    return CERTIFY_ACTIONS[args.action][0].main(args)


def refuse(words: Sequence[str]) -> None:
    """Set earlier certificates aside when the command line of a run is wrong."""
    if words and words[0] == "run":
        certify_run.set_aside_on_usage_error(words[1:])
