"""The report files of a certification."""

import os
from dataclasses import dataclass
from pathlib import Path

from assay.errors import ConfigError
from assay.types import AgentDefinition, replace_private

from .agent_card import card_markdown
from .certificate import Resource, build_statement
from .certified import CertificationResult
from .junit import junit_xml
from .signatures import SigningKey

RESULT_FILE = "result.json"
CARD_FILE = "card.md"
JUNIT_FILE = "junit.xml"
CERTIFICATE_FILE = "certificate.json"
SIGNED_CERTIFICATE_FILE = "certificate.dsse.json"
MAX_VALID_DAYS = 3650


@dataclass(frozen=True)
class IssueOptions:
    """Validity, subjects and key of a certificate."""

    valid_days: int = 90
    """Days of validity after the last measurement."""

    subjects: tuple[Resource, ...] = ()
    """Further tested artifacts, such as an image or a commit."""

    key: SigningKey | None = None
    """None: the certificate is not signed."""

    def __post_init__(self) -> None:
        if not 1 <= self.valid_days <= MAX_VALID_DAYS:
            raise ConfigError(
                f"valid_days={self.valid_days!r} is not between 1 and {MAX_VALID_DAYS}",
                hint="certify again from time to time: models change behind their names",
            )


def write_reports(
    result: CertificationResult,
    out: Path,
    *,
    definition: AgentDefinition | None = None,
    options: IssueOptions | None = None,
) -> tuple[Path, ...]:
    """Write the reports of a result into the folder `out`. Returns the written files.

    A certificate is written only if the result can be certified.
    """
    options = options or IssueOptions()
    out.mkdir(parents=True, exist_ok=True)
    # A certificate of an earlier run must not remain beside the results of this one.
    for name in (CERTIFICATE_FILE, SIGNED_CERTIFICATE_FILE):
        (out / name).unlink(missing_ok=True)
    texts = {
        RESULT_FILE: result.model_dump_json(indent=2) + "\n",
        CARD_FILE: card_markdown(result, definition),
        JUNIT_FILE: junit_xml(result),
    }
    if result.attestable:
        days = options.valid_days
        statement = build_statement(result, valid_days=days, subjects=options.subjects).to_json()
        texts[CERTIFICATE_FILE] = statement
        if options.key is not None:
            texts[SIGNED_CERTIFICATE_FILE] = options.key.sign(statement)
    for name, text in texts.items():
        write_atomically(out / name, text)
    return tuple(out / name for name in texts)


def back_up_reports(out: Path) -> tuple[Path, ...]:
    """Rename the reports in a folder to `NAME.previous`. Returns the new paths."""
    # Called before a run: if it fails, earlier results must not be mistaken for its own.
    found = []
    for name in (CERTIFICATE_FILE, SIGNED_CERTIFICATE_FILE, RESULT_FILE, CARD_FILE, JUNIT_FILE):
        path = out / name
        if path.is_file() or path.is_symlink():
            found.append(path.replace(out / f"{name}.previous"))
    return tuple(found)


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that readers see either the old or the complete new content."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        # Not created as private: reports are meant to be shared, and contain no conversations.
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
        replace_private(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
