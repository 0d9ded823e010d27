"""The files that a certification leaves behind."""

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
    """How a certificate is issued."""

    valid_days: int = 90
    """Counted from the last measurement."""

    subjects: tuple[Resource, ...] = ()
    """Further artifacts that were tested: an image, a commit."""

    key: SigningKey | None = None
    """None: the certificate is not signed."""

    def __post_init__(self) -> None:
        if not 1 <= self.valid_days <= MAX_VALID_DAYS:
            raise ConfigError(
                f"valid_days={self.valid_days!r} is not from 1 to {MAX_VALID_DAYS}",
                hint="models change under their names: certify again from time to time",
            )


def write_reports(
    result: CertificationResult,
    out: Path,
    *,
    definition: AgentDefinition | None = None,
    options: IssueOptions | None = None,
) -> tuple[Path, ...]:
    """Write what is reported of a result into the folder `out`; the files that were written.

    A certificate is among them only where the result can have one. One of an earlier run does not
    stay beside the results of this.
    """
    out.mkdir(parents=True, exist_ok=True)
    for name in (CERTIFICATE_FILE, SIGNED_CERTIFICATE_FILE):
        (out / name).unlink(missing_ok=True)
    texts = {
        RESULT_FILE: result.model_dump_json(indent=2) + "\n",
        CARD_FILE: card_markdown(result, definition),
        JUNIT_FILE: junit_xml(result),
        **_render_certificate(result, options or IssueOptions()),
    }
    for name, text in texts.items():
        write_atomically(out / name, text)
    return tuple(out / name for name in texts)


def back_up_reports(out: Path) -> tuple[Path, ...]:
    """Rename the certificates and reports in a folder to `NAME.previous`; their new names.

    Called before a run: whatever becomes of it, earlier results are not taken for its own.
    """
    found = []
    for name in (CERTIFICATE_FILE, SIGNED_CERTIFICATE_FILE, RESULT_FILE, CARD_FILE, JUNIT_FILE):
        path = out / name
        if path.is_file() or path.is_symlink():
            found.append(path.replace(out / f"{name}.previous"))
    return tuple(found)


def _render_certificate(result: CertificationResult, options: IssueOptions) -> dict[str, str]:
    if not result.attestable:
        return {}
    statement = build_statement(
        result, valid_days=options.valid_days, subjects=options.subjects
    ).to_json()
    if options.key is None:
        return {CERTIFICATE_FILE: statement}
    return {CERTIFICATE_FILE: statement, SIGNED_CERTIFICATE_FILE: options.key.sign(statement)}


def write_atomically(path: Path, text: str) -> None:
    """Write a file such that a reader finds all of it, or what was there before."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        # As the umask has it: reports are for others to read, and hold no conversations.
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(text)
        replace_private(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
