"""The GitHub Actions output of a certification: a table, and annotations on the manifest."""

import os
import sys
from pathlib import Path

from assay.certify import CertificationResult, CriterionStatus, summary_markdown
from assay.stats import clean_text, escape_command, escape_command_property

# A reason may quote a long answer of a model.
_MAX_ANNOTATION_CHARS = 1000


def write_github_summary(result: CertificationResult, manifest: Path) -> None:
    """Append to the step summary and annotate missed criteria; outside of GitHub do nothing."""
    if page := os.environ.get("GITHUB_STEP_SUMMARY"):
        try:
            with open(page, "a", encoding="utf-8") as file:
                file.write(summary_markdown(result))
        except OSError as error:
            # Not raised: the certification itself is complete.
            print(f"the step summary cannot be written: {error.strerror}", file=sys.stderr)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in format_criterion_annotations(result, _find_path_in_checkout(manifest)):
            print(line, file=sys.stderr)


def format_criterion_annotations(result: CertificationResult, file: str) -> list[str]:
    """Return a workflow command for each criterion that is not met."""
    found = []
    for outcome in result.outcomes:
        if outcome.status is CriterionStatus.PASSED:
            continue
        kind = "error" if outcome.strict else "warning"
        title = escape_command_property(
            clean_text(f"{result.agent.id}: {outcome.name}", _MAX_ANNOTATION_CHARS)
        )
        text = escape_command(clean_text(outcome.reason, _MAX_ANNOTATION_CHARS))
        found.append(f"::{kind} file={escape_command_property(file)},title={title}::{text}")
    return found


def _find_path_in_checkout(path: Path) -> str:
    # Annotations are attached to paths relative to the root of the checkout.
    workspace = os.environ.get("GITHUB_WORKSPACE")
    whole = path.absolute()
    if workspace and whole.is_relative_to(workspace):
        return whole.relative_to(workspace).as_posix()
    return path.as_posix()
