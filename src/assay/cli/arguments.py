"""Arguments of commands: how they are declared, and how their values are parsed.

Imports nothing of assay: every command loads it.
"""

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from math import inf, isfinite
from typing import Any, Protocol

DEFAULT_GRACE_S = 30.0
_DURATION_UNITS = {
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


class Command(Protocol):
    """The interface of the module of a command or of an action."""

    def configure(self, parser: ArgumentParser) -> None: ...

    def main(self, args: Namespace) -> int: ...


def add_actions(
    parser: ArgumentParser, actions: Mapping[str, tuple[Command, str]], *, metavar: str = "ACTION"
) -> None:
    """Declare the actions of a command: the module and the purpose of each."""
    declared = parser.add_subparsers(dest="action", required=True, metavar=metavar)
    for name, (module, purpose) in actions.items():
        # Not `capitalize`, which would write GRPO in small letters.
        description = f"{purpose[0].upper()}{purpose[1:]}."
        action = declared.add_parser(
            name, help=purpose, description=description, allow_abbrev=False
        )
        module.configure(action)


def add_flag(parser: ArgumentParser, name: str, help: str) -> None:
    """Declare an option without a value."""
    parser.add_argument(name, action="store_true", help=help)


def add_count(parser: ArgumentParser, name: str, help: str, *, default: int | None = None) -> None:
    """Declare an option with a number of 1 or more; its help names the default."""
    text = help if default is None else f"{help} (default: {default})"
    parser.add_argument(name, type=parse_count, default=default, metavar="N", help=text)


def add_renamed_option(parser: ArgumentParser, name: str, former: str, **settings: Any) -> None:
    """Declare an option whose `former` name still works, but is not listed in the help."""
    action = parser.add_argument(name, former, **settings)
    # Help, messages and suggestions read this list; parsing does not.
    action.option_strings = [name]


def add_report_to_option(parser: ArgumentParser) -> None:
    """Declare `--report-to`, the trackers of a training."""
    parser.add_argument(
        "--report-to",
        action="append",
        metavar="TRACKER",
        help="also write the metrics for tensorboard, wandb, mlflow or trackio, on this machine "
        "only (repeatable)",
    )


def add_grace_option(parser: ArgumentParser, what: str) -> None:
    """Declare `--grace-s`, the time for samples or rollouts to end after Ctrl-C."""
    add_renamed_option(
        parser,
        "--grace-s",
        "--grace",
        type=parse_seconds,
        default=DEFAULT_GRACE_S,
        metavar="SECONDS",
        help=f"time for {what} in flight to end after Ctrl-C (default: {DEFAULT_GRACE_S:g})",
    )


def add_report_options(
    parser: ArgumentParser, *, quiet: bool = False, action: bool = False
) -> None:
    """Declare `--json` and, for commands with progress, `--quiet`."""
    # The default of an action would override a flag that was given before the action.
    default = SUPPRESS if action else False
    text = "print one JSON object instead"
    parser.add_argument("--json", action="store_true", default=default, help=text)
    if quiet:
        add_flag(parser, "--quiet", "show no progress")


def parse_count(text: str) -> int:
    """Parse a whole number of 1 or more."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)


def parse_whole_number(text: str) -> int:
    """Parse a whole number of 0 or more."""
    if not text.isdecimal():
        raise ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def parse_finite_number(text: str) -> float:
    """Parse a finite number."""
    return _parse_number(text, isfinite, "a number")


def parse_dollars(text: str) -> float:
    """Parse an amount of US dollars above 0."""
    return _parse_number(text, lambda value: 0 < value < inf, "an amount of US dollars above 0")


def parse_seconds(text: str) -> float:
    """Parse a number of seconds of 0 or more."""
    return _parse_number(text, lambda value: 0 <= value < inf, "a number of seconds")


def _parse_number(text: str, is_valid: Callable[[float], bool], wanted: str) -> float:
    with suppress(ValueError):
        if is_valid(value := float(text)):
            return value
    raise ArgumentTypeError(f"{text!r} is not {wanted}")


def parse_duration(text: str) -> timedelta:
    """Parse a duration such as `30d`, `12h`, `90m` or `2w`."""
    found = re.fullmatch(r"(\d{1,6})([mhdw])", text)
    if found is None or not int(found[1]):
        raise ArgumentTypeError(f"{text!r} is not a duration such as 30d, 12h or 2w")
    return int(found[1]) * _DURATION_UNITS[found[2]]


def parse_moment(text: str) -> datetime:
    """Parse a date, an ISO 8601 time (UTC without an offset), or an age such as `30d`."""
    if ago := re.fullmatch(r"(\d{1,6})([hdw])", text):
        return datetime.now(UTC) - int(ago[1]) * _DURATION_UNITS[ago[2]]
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ArgumentTypeError(
            f"{text!r} is neither a date such as 2026-02-14 nor an age such as 30d"
        ) from None
    # Local time would make the same command mean different runs on different machines.
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
