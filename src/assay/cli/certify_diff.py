"""`assay certify diff`: what changed between two manifests, and whether the bar was lowered."""

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.certify import ChangeClass, ManifestChange, compare_manifests
from assay.types import Manifest

from .exit_status import EXIT_FAIL, EXIT_PASS
from .terminal import cut, print_json, sanitize_lines

_CHANGE_CLASSES: tuple[ChangeClass, ...] = ("weakened", "moved", "strengthened", "other")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the action."""
    parser.add_argument("old", type=Path, metavar="OLD.yaml", help="the manifest as it was")
    parser.add_argument("new", type=Path, metavar="NEW.yaml", help="the manifest as it is to be")
    parser.add_argument("--agent", metavar="ID", help="one agent (default: everything)")
    add_guard_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def add_guard_options(parser: ArgumentParser) -> None:
    """Declare which changes are refused."""
    parser.add_argument(
        "--no-weaken", action="store_true", help="exit 1 when anything is asked less strictly"
    )
    parser.add_argument(
        "--no-move",
        action="store_true",
        help="exit 1 when a dataset, a judge or a metric is another one",
    )


def main(args: Namespace) -> int:
    """Exit status: 0, or 1 when a change is of a class that was not to be; 2 a manifest is bad."""
    changes = compare_manifests(Manifest.load(args.old), Manifest.load(args.new), agent=args.agent)
    status = EXIT_FAIL if has_refused_change(changes, args) else EXIT_PASS
    if args.json:
        print_json({"exit_status": status, **changes_to_dict(changes)})
    else:
        print(sanitize_lines("\n".join(format_manifest_changes(changes))))
    return status


def has_refused_change(changes: Sequence[ManifestChange], args: Namespace) -> bool:
    """Whether one of the changes is of a class that the options refuse."""
    classes = {each.change for each in changes}
    return (args.no_weaken and "weakened" in classes) or (args.no_move and "moved" in classes)


def changes_to_dict(changes: Sequence[ManifestChange]) -> dict[str, Any]:
    """What the lines say."""
    return {
        "counts": _count_change_classes(changes),
        "changes": [json.loads(each.model_dump_json()) for each in changes],
    }


def format_manifest_changes(changes: Sequence[ManifestChange]) -> list[str]:
    """A block for each change, and a count of the classes."""
    if not changes:
        return ["nothing changed"]
    lines = []
    for each in changes:
        where = each.path if each.agent is None else f"{each.agent}: {each.path}"
        note = f" ({each.note})" if each.note else ""
        lines += [
            f"{each.change:<14}{cut(f'{where}{note}', 100)}",
            f"{'':<14}{cut(f'old  {_format_manifest_value(each.old)}', 200)}",
            f"{'':<14}{cut(f'new  {_format_manifest_value(each.new)}', 200)}",
        ]
    counted = ", ".join(
        f"{count} {name}" for name, count in _count_change_classes(changes).items() if count
    )
    return [*lines, "", f"{'changes':<14}{counted}"]


def _count_change_classes(changes: Sequence[ManifestChange]) -> dict[str, int]:
    counted = Counter(each.change for each in changes)
    return {name: counted[name] for name in _CHANGE_CLASSES}


def _format_manifest_value(value: Any) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)
