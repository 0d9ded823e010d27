"""`assay certify`: hold an agent to the definition of done in its manifest."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from . import (
    certify_diff,
    certify_keygen,
    certify_plan,
    certify_run,
    certify_verify,
)

CERTIFY_ACTIONS = {
    "plan": (certify_plan, "show what a certification would run, prove and cost; calls nothing"),
    "run": (certify_run, "run a certification and record it"),
    "verify": (certify_verify, "hold a certificate against the manifest of what is deployed"),
    "diff": (certify_diff, "show what changed between two manifests, and what was weakened"),
    "keygen": (certify_keygen, "make a key to sign certificates with"),
}
"""Each action is a module of its own, with `configure` and `main` like a command."""


def configure(parser: ArgumentParser) -> None:
    """Declare the actions of the command."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, (module, does) in CERTIFY_ACTIONS.items():
        action = actions.add_parser(
            name, help=does, description=f"{does.capitalize()}.", allow_abbrev=False
        )
        module.configure(action)


def main(args: Namespace) -> int:
    """Do what the action does; each has its own exit status."""
    status: int = CERTIFY_ACTIONS[args.action][0].main(args)
    return status


def refuse(words: Sequence[str]) -> None:
    """Leave no earlier certificate behind when the command line of a run is wrong."""
    if words and words[0] == "run":
        certify_run.set_aside_on_usage_error(words[1:])
