"""`assay certify diff`: the changes between two manifests, and which of them weaken it."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.certify import ChangeClass, ManifestChange, compare_manifests
from assay.types import Manifest

from .arguments import add_flag, add_report_options
from .exit_status import EXIT_FAIL, EXIT_PASS
from .output import format_field, print_report

# In the order of the report: what a reviewer must see comes first.
_CHANGE_CLASSES: tuple[ChangeClass, ...] = ("weakened", "moved", "strengthened", "other")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("old", type=Path, metavar="OLD.yaml", help="the old manifest")
    parser.add_argument("new", type=Path, metavar="NEW.yaml", help="the new manifest")
    parser.add_argument("--agent", metavar="ID", help="compare one agent (default: all of them)")
    add_guard_options(parser)
    add_report_options(parser)


def add_guard_options(parser: ArgumentParser) -> None:
    """Declare the options that refuse changes."""
    add_flag(parser, "--no-weaken", "exit 1 when a requirement is less strict")
    add_flag(parser, "--no-move", "exit 1 when a dataset, a judge or a metric is replaced")


def main(args: Namespace) -> int:
    """Exit status: 0, 1 when the options refuse a change, 2 when a manifest is invalid."""
    changes = compare_manifests(Manifest.load(args.old), Manifest.load(args.new), agent=args.agent)
    status = EXIT_FAIL if has_refused_change(changes, args) else EXIT_PASS
    print_report(
        args, format_manifest_changes(changes), {"exit_status": status, **changes_to_dict(changes)}
    )
    return status


def has_refused_change(changes: Sequence[ManifestChange], args: Namespace) -> bool:
    """Whether the options refuse one of the changes."""
    classes = {each.change for each in changes}
    return (args.no_weaken and "weakened" in classes) or (args.no_move and "moved" in classes)


def changes_to_dict(changes: Sequence[ManifestChange]) -> dict[str, Any]:
    """Return the changes as plain values, with a count of each class."""
    counted = Counter(each.change for each in changes)
    return {
        "counts": {name: counted[name] for name in _CHANGE_CLASSES},
        "changes": [json.loads(each.model_dump_json()) for each in changes],
    }


def format_manifest_changes(changes: Sequence[ManifestChange]) -> list[str]:
    """Return a block of lines for each change, and the counts of the classes."""
    if not changes:
        return ["nothing changed"]
    lines = []
    for each in changes:
        where = each.path if each.agent is None else f"{each.agent}: {each.path}"
        note = f" ({each.note})" if each.note else ""
        lines.append(format_field(each.change, f"{where}{note}", columns=100))
        for name, value in (("old", each.old), ("new", each.new)):
            text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
            lines.append(format_field("", f"{name}  {text}", columns=200))
    counts: dict[str, int] = changes_to_dict(changes)["counts"]
    counted = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return [*lines, "", format_field("changes", counted)]
