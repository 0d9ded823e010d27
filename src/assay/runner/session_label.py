"""Labels of recorded sessions: title, date and folder."""

from dataclasses import dataclass
from datetime import UTC, datetime

from assay.types import Sample

# Limits the work of measuring; lines cut a label further to the columns they have.
_MAX_LABEL_CHARS = 200


@dataclass(frozen=True)
class SessionLabel:
    """The title, date and folder of a recorded session; None for each that is not recorded."""

    title: str | None
    created: str | None
    """In UTC, such as `2026-02-14T09:30:00Z`."""

    project: str | None
    directory: str | None

    @property
    def date(self) -> str:
        """Such as `2026-02-14 09:30`, or `date unknown`."""
        return "date unknown" if self.created is None else self.created[:16].replace("T", " ")

    @property
    def place(self) -> str:
        """The folder in which the agent worked, else the project, else ""."""
        return self.directory or self.project or ""


def build_session_label(sample: Sample) -> SessionLabel | None:
    """Return the label of a sample from a recorded session; None for any other."""
    # `source` alone is ambiguous: rows of a dataset may have it too.
    marks = sample.metadata.keys() & {"content_id", "atif"}
    if not marks or not isinstance(sample.metadata.get("source"), str):
        return None
    given = sample.input
    times = (message.timestamp for message in sample.messages)
    return SessionLabel(
        title=_read_label_text(given.get("title")),
        created=_convert_to_utc(given.get("created"))
        or next(filter(None, map(_convert_to_utc, times)), None),
        project=_read_label_text(given.get("project")),
        directory=_read_label_text(given.get("directory")),
    )


def _read_label_text(value: object) -> str | None:
    return value[:_MAX_LABEL_CHARS] if isinstance(value, str) and value.strip() else None


def _convert_to_utc(value: object) -> str | None:
    # None for anything but an ISO 8601 time: the value comes from a foreign file.
    if not isinstance(value, str):
        return None
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
