"""Read ATIF files: one `trajectory.json` per session, or one document per line."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadRow, DatasetError
from assay.formats import (
    ATIF_CALL_FIELDS,
    ATIF_DOCUMENT_FIELDS,
    ATIF_METRIC_FIELDS,
    ATIF_RESULT_FIELDS,
    ATIF_STEP_FIELDS,
    ATIF_VERSION,
    from_atif,
)
from assay.types import Sample

from .foreign_values import dict_or_empty, list_or_empty, parse_iso_ms, text_or_none
from .session_choice import SessionChoice, SessionMeta, UnreadableSession
from .session_lines import iterate_numbered_lines
from .session_reading import Children
from .session_stream import RecordedSession, SessionStream, StreamOptions
from .stored_json import parse_stored_object, read_stored_object

_ATIF_PREFIX = "ATIF-v"
NEWEST_TESTED_ATIF = ATIF_VERSION.removeprefix(_ATIF_PREFIX)
_ATIF_PARTS = ("text", "image", "audio")
# Names come from files: longer ones are cut.
_MAX_FIELD_LENGTH = 80


def read_atif(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    redact: Callable[[Sample], Sample] | None = None,
) -> SessionStream:
    """Stream the trajectories of ATIF files as samples.

    `path` is a `.json` file with one document, a `.jsonl` file with one on each line, or a folder
    with such files at any depth, where other `.json` files are skipped. `redact` is applied to
    each sample before it is returned.
    """
    wanted = StreamOptions(choice or SessionChoice(), children, redact)
    return SessionStream(Path(path), _find_trajectories, wanted, newest_tested=NEWEST_TESTED_ATIF)


def _find_trajectories(path: Path) -> Iterator[RecordedSession | UnreadableSession]:
    files = [path]
    if path.is_dir():
        files = [file for file in sorted(path.rglob("*.json*")) if _looks_like_atif(file)]
        if not files:
            raise DatasetError("the folder contains no ATIF files", where=str(path))
    elif not path.is_file():
        raise DatasetError("the file or folder does not exist", where=str(path))
    for file in files:
        name = file.stem if file is path else file.relative_to(path).with_suffix("").as_posix()
        if file.suffix != ".jsonl":
            yield _read_document(file, where=str(file), name=name)
            continue
        try:
            for number, line in iterate_numbered_lines(file):
                yield _read_document(line, where=f"{file}:{number}", name=f"{name}:{number}")
        except BadRow as problem:
            yield UnreadableSession(name, problem.with_traceback(None))


def _looks_like_atif(file: Path) -> bool:
    """Whether a file names the format near its start, where every writer puts it."""
    if file.suffix not in (".json", ".jsonl") or not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            return _ATIF_PREFIX.encode() in opened.read(4096)
    except OSError:
        return True  # reading it reports the error


def _read_document(source: Any, *, where: str, name: str) -> RecordedSession | UnreadableSession:
    try:
        if isinstance(source, BadRow):
            raise source
        document = (
            read_stored_object(source)
            if isinstance(source, Path)
            else parse_stored_object(source, where=where)
        )
        return _build_atif_session(document, where, name)
    except BadRow as problem:
        return UnreadableSession(name, problem.with_traceback(None))


def _build_atif_session(document: Mapping[str, Any], where: str, name: str) -> RecordedSession:
    session_id = text_or_none(document.get("trajectory_id")) or text_or_none(
        document.get("session_id")
    )
    stamps = [step.get("timestamp") for step in _list_steps(document)]
    times = [at for at in map(parse_iso_ms, stamps) if at is not None]
    inner = document.get("subagent_trajectories")
    found = inner if isinstance(inner, list) else [] if inner is None else [inner]
    meta = SessionMeta(
        id=session_id or name,
        created=min(times, default=None),
        updated=max(times, default=None),
    )
    return RecordedSession(
        meta,
        partial(_read_atif_sample, document, meta.id, where),
        partial(_iterate_subagents, found, meta.id, where),
        version=(text_or_none(document.get("schema_version")) or "").removeprefix(_ATIF_PREFIX)
        or None,
    )


def _list_steps(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [step for step in list_or_empty(document.get("steps")) if isinstance(step, Mapping)]


def _iterate_subagents(
    documents: Iterable[Any], parent: str, where: str
) -> Iterator[RecordedSession | UnreadableSession]:
    for place, document in enumerate(documents):
        at, name = f"{where} subagent {place}", f"{parent}/{place}"
        if isinstance(document, dict):
            yield _build_atif_session(document, at, name)
        else:
            problem = BadRow(
                f"the subagent is a {type(document).__name__}, not an object", where=at
            )
            yield UnreadableSession(name, problem)


def _read_atif_sample(document: Mapping[str, Any], session_id: str, where: str) -> Sample:
    # The stream adds subagents back according to `children`.
    alone = {key: value for key, value in document.items() if key != "subagent_trajectories"}
    try:
        sample = from_atif(alone)
    except AssayError as error:
        raise BadRow(error.message, where=f"{where}: {error.where}", hint=error.hint) from None
    if sample.id != session_id:
        sample = sample.model_copy(update={"id": session_id})
    if reference := document.get("continued_trajectory_ref"):
        sample.metadata["continued_in"] = json.loads(json.dumps(reference))
    if unknown := _count_unknown_fields(document):
        before = dict_or_empty(sample.metadata.get("unknown_records"))
        sample.metadata["unknown_records"] = before | unknown
    return sample


def _count_unknown_fields(document: Mapping[str, Any]) -> Counter[str]:
    """Count fields and content parts that the supported versions of ATIF do not have."""
    found: Counter[str] = Counter()
    for field in document.keys() - ATIF_DOCUMENT_FIELDS:
        found[f"field {field[:_MAX_FIELD_LENGTH]}"] += 1
    for step in _list_steps(document):
        results = list_or_empty(dict_or_empty(step.get("observation")).get("results"))
        inner = (
            ("steps[]", [step], ATIF_STEP_FIELDS),
            ("steps[].tool_calls[]", list_or_empty(step.get("tool_calls")), ATIF_CALL_FIELDS),
            ("steps[].observation.results[]", results, ATIF_RESULT_FIELDS),
            ("steps[].metrics", [step.get("metrics")], ATIF_METRIC_FIELDS),
        )
        for name, values, known in inner:
            for value in filter(lambda each: isinstance(each, Mapping), values):
                for field in value.keys() - known:
                    found[f"field {name}.{field[:_MAX_FIELD_LENGTH]}"] += 1
        for holder, key in ((step, "message"), *((result, "content") for result in results)):
            for part in list_or_empty(dict_or_empty(holder).get(key)):
                if isinstance(part, Mapping) and part.get("type") not in _ATIF_PARTS:
                    found[f"content part {str(part.get('type'))[:_MAX_FIELD_LENGTH]}"] += 1
    return found
