"""Files in ATIF: one `trajectory.json` for each session, or a document on each line."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from assay.errors import AssayError, BadRow, DatasetError
from assay.formats import (
    CALL_FIELDS,
    DOCUMENT_FIELDS,
    METRIC_FIELDS,
    RESULT_FIELDS,
    STEP_FIELDS,
    VERSION,
    from_atif,
)
from assay.types import Sample

from .session_choice import SessionChoice
from .session_lines import numbered_lines
from .session_meta import Head, Unreadable
from .session_reading import Children
from .session_times import milliseconds
from .stored_json import parse_object, read_object
from .transcripts import Recorded, TranscriptStream, Wanted, text_or_none

_PREFIX = "ATIF-v"
NEWEST_TESTED = VERSION.removeprefix(_PREFIX)
_PARTS = ("text", "image", "audio")
_LONGEST = 80


def read_atif(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    children: Children = "inline",
    redact: Callable[[Sample], Sample] | None = None,
) -> TranscriptStream:
    """Stream the trajectories of ATIF files as samples.

    `path` is a `.json` file with one document, a `.jsonl` file with one on each line, or a folder
    with such files at any depth; in it, `.json` files of other kinds are passed over. `redact`
    sees each sample before anybody else and returns what may be shown.
    """
    wanted = Wanted(choice or SessionChoice(), children, redact)
    return TranscriptStream(Path(path), _find, wanted, newest_tested=NEWEST_TESTED)


def _find(path: Path) -> Iterator[Recorded | Unreadable]:
    if path.is_file():
        yield from _of_file(path, name=path.stem)
        return
    if not path.is_dir():
        raise DatasetError("there is no such file or folder", where=str(path))
    files = [file for file in sorted(path.rglob("*.json*")) if _looks_like_atif(file)]
    if not files:
        raise DatasetError("holds no files in ATIF", where=str(path))
    for file in files:
        yield from _of_file(file, name=file.relative_to(path).with_suffix("").as_posix())


def _looks_like_atif(file: Path) -> bool:
    """Whether a file names the format near its beginning, where every writer puts it.

    One that cannot be opened may be in the format: reading it reports why it is not read.
    """
    if file.suffix not in (".json", ".jsonl") or not file.is_file():
        return False
    try:
        with file.open("rb") as opened:
            return _PREFIX.encode() in opened.read(4096)
    except OSError:
        return True


def _of_file(path: Path, *, name: str) -> Iterator[Recorded | Unreadable]:
    if path.suffix != ".jsonl":
        yield _found(path, where=str(path), name=name)
        return
    try:
        for number, line in numbered_lines(path):
            yield _found(line, where=f"{path}:{number}", name=f"{name}:{number}")
    except BadRow as problem:
        yield Unreadable(name, problem.with_traceback(None))


def _found(source: Any, *, where: str, name: str) -> Recorded | Unreadable:
    try:
        if isinstance(source, BadRow):
            raise source
        document = (
            read_object(source) if isinstance(source, Path) else parse_object(source, where=where)
        )
        return _recorded(document, where, name)
    except BadRow as problem:
        return Unreadable(name, problem.with_traceback(None))


def _recorded(document: Mapping[str, Any], where: str, name: str) -> Recorded:
    session_id = text_or_none(document.get("trajectory_id")) or text_or_none(
        document.get("session_id")
    )
    stamps = [step.get("timestamp") for step in _steps(document)]
    times = [at for at in map(milliseconds, stamps) if at is not None]
    inner = document.get("subagent_trajectories")
    found = inner if isinstance(inner, list) else [] if inner is None else [inner]
    head = Head(
        id=session_id or name,
        created=min(times, default=None),
        updated=max(times, default=None),
    )
    return Recorded(
        head,
        partial(_sample, document, head.id, where),
        partial(_children, found, head.id, where),
        version=(text_or_none(document.get("schema_version")) or "").removeprefix(_PREFIX) or None,
    )


def _steps(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    steps = document.get("steps")
    return [step for step in steps if isinstance(step, Mapping)] if isinstance(steps, list) else []


def _children(documents: Iterable[Any], parent: str, where: str) -> Iterator[Recorded | Unreadable]:
    for place, document in enumerate(documents):
        at, name = f"{where} subagent {place}", f"{parent}/{place}"
        if isinstance(document, dict):
            yield _recorded(document, at, name)
        else:
            problem = BadRow(f"is a {type(document).__name__}, not an object", where=at)
            yield Unreadable(name, problem)


def _sample(document: Mapping[str, Any], session_id: str, where: str) -> Sample:
    # Subagents are put back where they are asked for, by the stream.
    alone = {key: value for key, value in document.items() if key != "subagent_trajectories"}
    try:
        sample = from_atif(alone)
    except AssayError as error:
        raise BadRow(error.message, where=f"{where}: {error.where}", hint=error.hint) from None
    if sample.id != session_id:
        sample = sample.model_copy(update={"id": session_id})
    if reference := document.get("continued_trajectory_ref"):
        sample.metadata["continued_in"] = json.loads(json.dumps(reference))
    if unknown := _count_unknown(document):
        before = sample.metadata.get("unknown_records")
        sample.metadata["unknown_records"] = (before if isinstance(before, dict) else {}) | unknown
    return sample


def _count_unknown(document: Mapping[str, Any]) -> Counter[str]:
    """Fields and content parts that ATIF does not have in the versions known here."""
    found: Counter[str] = Counter()
    for field in document.keys() - DOCUMENT_FIELDS:
        found[f"field {field[:_LONGEST]}"] += 1
    for step in _steps(document):
        for name, value, known in _objects(step):
            for field in value.keys() - known:
                found[f"field {name}.{field[:_LONGEST]}"] += 1
        for content in _contents(step):
            for part in content if isinstance(content, list) else ():
                if isinstance(part, Mapping) and part.get("type") not in _PARTS:
                    found[f"content part {str(part.get('type'))[:_LONGEST]}"] += 1
    return found


def _objects(step: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any], frozenset[str]]]:
    """A step and what is inside it, each with its name and the fields that it may have."""
    yield "steps[]", step, STEP_FIELDS
    inner = (
        ("tool_calls[]", step.get("tool_calls"), CALL_FIELDS),
        ("observation.results[]", _results(step), RESULT_FIELDS),
        ("metrics", [step.get("metrics")], METRIC_FIELDS),
    )
    for name, values, known in inner:
        for value in values if isinstance(values, list) else ():
            if isinstance(value, Mapping):
                yield f"steps[].{name}", value, known


def _results(step: Mapping[str, Any]) -> list[Any]:
    observation = step.get("observation")
    results = observation.get("results") if isinstance(observation, Mapping) else None
    return results if isinstance(results, list) else []


def _contents(step: Mapping[str, Any]) -> Iterator[Any]:
    yield step.get("message")
    for result in _results(step):
        if isinstance(result, Mapping):
            yield result.get("content")
