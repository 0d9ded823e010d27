"""What GitHub Actions shows of a certification: a table, and annotations beside the manifest."""

import os
import sys
from pathlib import Path

from assay.certify import CertificationResult, CriterionStatus, summary_markdown
from assay.stats import command_property, command_text, plain

_LONGEST = 1000


def tell_github(result: CertificationResult, manifest: Path) -> None:
    """Add to the step summary, and annotate what was missed; nothing outside of GitHub."""
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(summary_markdown(result))
        except OSError as error:
            # A certification is not lost for the want of a page about it.
            print(f"the step summary could not be written: {error.strerror}", file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotations(result, _in_repository(manifest)):
            print(line, file=sys.stderr)


def annotations(result: CertificationResult, file: str) -> list[str]:
    """A workflow command for each criterion that was not met."""
    found = []
    for outcome in result.outcomes:
        if outcome.status is CriterionStatus.PASSED:
            continue
        kind = "error" if outcome.strict else "warning"
        title = command_property(plain(f"{result.agent.id}: {outcome.name}", _LONGEST))
        text = command_text(plain(outcome.reason, _LONGEST))
        found.append(f"::{kind} file={command_property(file)},title={title}::{text}")
    return found


def _in_repository(path: Path) -> str:
    """A path from the top of the checkout, which is what annotations are attached to."""
    workspace = os.environ.get("GITHUB_WORKSPACE")
    whole = path.absolute()
    if workspace and whole.is_relative_to(workspace):
        return whole.relative_to(workspace).as_posix()
    return path.as_posix()
