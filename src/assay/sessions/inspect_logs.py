"""Read Inspect logs with Inspect's own reader: every sample of an evaluation, with scores."""

from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from assay.errors import AssayError, BadRow, DatasetError, MissingExtra
from assay.types import (
    DataBlock,
    EvaluateResult,
    Message,
    Metric,
    ModelCall,
    Sample,
    Status,
    TextBlock,
    ToolCall,
    Usage,
)

from .session_choice import SessionChoice, SessionMeta, UnreadableSession
from .session_stream import RecordedSession, SessionStream, StreamOptions
from .transcripts import Conversation

# Inspect's grades with the values of its own metrics: correct, partial, incorrect, no answer.
_GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}

NEWEST_TESTED_INSPECT = "0.3.285"
"""The newest version of Inspect whose logs the tests read."""

# Known kinds, used or not: all others are counted as unknown.
_INSPECT_ROLES = ("system", "user", "assistant", "tool")
_INSPECT_PARTS = ("text", "reasoning", "image", "audio", "video", "document", "data", "tool_use")
_INSPECT_EVENTS = frozenset(
    "anchor approval branch checkpoint compaction error info input interrupt logger model review "
    "sample_init sample_limit sandbox score score_edit sentinel span_begin span_end state step "
    "store subtask tool".split()
)


def read_inspect(
    path: str | Path,
    choice: SessionChoice | None = None,
    *,
    redact: Callable[[Sample], Sample] | None = None,
) -> SessionStream:
    """Stream the samples of Inspect's logs. Needs the extra `inspect`.

    `path` is an `.eval` or `.json` log, or a folder of them. A sample's id is the task's name, its
    own id and the epoch. A score that is neither a number nor a grade makes no metric.
    """
    try:
        reader = import_module("inspect_ai.log")
    except ImportError as error:
        raise MissingExtra.build("inspect", by="read_inspect()", package="inspect_ai") from error
    wanted = StreamOptions(choice or SessionChoice(), "drop", redact)
    find = partial(_find_logs, reader=reader)
    return SessionStream(Path(path), find, wanted, newest_tested=NEWEST_TESTED_INSPECT)


def _find_logs(path: Path, *, reader: Any) -> Iterator[RecordedSession | UnreadableSession]:
    if not path.exists():
        raise DatasetError("the file or folder does not exist", where=str(path))
    files = [path]
    if path.is_dir():
        found = (file for file in path.rglob("*") if file.suffix in (".eval", ".json"))
        files = sorted(file for file in found if file.is_file())
    if not files:
        raise DatasetError("the folder contains no Inspect logs", where=str(path))
    for file in files:
        yield from _read_log_file(file, reader)


def _read_log_file(file: Path, reader: Any) -> Iterator[RecordedSession | UnreadableSession]:
    # The reader of another program may raise anything; the other files must still be read.
    try:
        log = reader.read_eval_log(str(file), header_only=True)
        pending = {
            (each.id, each.epoch) for each in reader.read_eval_log_sample_summaries(str(file))
        }
    except Exception as error:
        yield _build_unreadable(file.stem, error, str(file))
        return
    problem: Exception | None = None
    try:
        for sample in reader.read_eval_log_samples(
            str(file), all_samples_required=False, resolve_attachments=True
        ):
            pending.discard((sample.id, sample.epoch))
            yield _build_inspect_session(log, sample)
    except Exception as error:
        problem = error
    if problem is not None and not pending:
        yield _build_unreadable(file.stem, problem, str(file))
    # Samples that the iteration did not return, for example after an unreadable one.
    for name, epoch in sorted(pending, key=str):
        try:
            sample = reader.read_eval_log_sample(str(file), name, epoch, resolve_attachments=True)
            yield _build_inspect_session(log, sample)
        except Exception as error:
            yield _build_unreadable(f"{log.eval.task}/{name}/{epoch}", error, str(file))


def _build_unreadable(name: str, error: Exception, where: str) -> UnreadableSession:
    problem = BadRow(f"the file is not a readable Inspect log: {error}", where=where)
    return UnreadableSession(name, problem)


def _build_inspect_session(log: Any, sample: Any) -> RecordedSession:
    session_id = f"{log.eval.task}/{sample.id}/{sample.epoch}"
    return RecordedSession(
        SessionMeta(id=session_id, title=log.eval.task, project=log.eval.task),
        partial(_build_inspect_sample, log, sample, session_id),
        version=(log.eval.packages or {}).get("inspect_ai"),
    )


def _build_inspect_sample(log: Any, given: Any, session_id: str) -> Sample:
    conversation = Conversation()
    plain = given.model_dump(mode="json", include={"error", "limit", "metadata", "scores", "store"})
    about = {
        "title": log.eval.task,
        "created": given.started_at or log.eval.created,
        "id": given.id,
        "epoch": given.epoch,
        "choices": given.choices,
        "metadata": plain.pop("metadata") or None,
    }
    metadata = {
        "source": "inspect",
        "task": log.eval.task,
        "model": log.eval.model,
        "run_id": log.eval.run_id,
        **{key: value for key, value in plain.items() if value},
    }
    try:
        for message in given.messages:
            _add_inspect_message(conversation, message)
        _add_inspect_usage(conversation, given)
        _count_unknown_inspect_kinds(conversation, given)
        sample = conversation.to_sample(session_id, about, metadata)
    except (AssayError, ValidationError) as error:
        raise BadRow(f"the session contains invalid values: {error}", where=session_id) from None
    sample.ground_truth = given.target
    sample.score = _convert_scores(given)
    if given.error is not None:
        sample.status = Status.FAILED
    elif given.limit is not None:
        sample.status = Status.TRUNCATED
    return sample


def _add_inspect_message(conversation: Conversation, message: Any) -> None:
    calls = [
        ToolCall.model_validate(
            {"id": call.id, "name": call.function, "arguments": call.arguments}
            | ({"inspect": {"parse_error": call.parse_error}} if call.parse_error else {})
        )
        for call in getattr(message, "tool_calls", None) or ()
    ]
    details: dict[str, Any] = {"id": message.id}
    error = getattr(message, "error", None)
    if message.role == "tool":
        details |= {"status": "error" if error else "completed", "failed": error is not None}
        details["is_error"] = error is not None
    content, reasoning = _split_reasoning(message.content)
    if error is not None and not content:
        content = error.message
    if message.role == "assistant":
        conversation.calls.append(
            ModelCall(model=message.model, message_index=len(conversation.messages))
        )
    conversation.messages.append(
        Message(
            role=message.role,
            content=None if calls and not content else content,
            tool_calls=tuple(calls),
            tool_call_id=getattr(message, "tool_call_id", None),
            name=getattr(message, "function", None),
            reasoning=reasoning,
            model=getattr(message, "model", None),
            details=details,
        )
    )


def _split_reasoning(content: Any) -> tuple[Any, str | None]:
    """Split the content of a message from its reasoning. Other parts keep Inspect's format."""
    if isinstance(content, str):
        return content, None
    blocks: list[TextBlock | DataBlock] = []
    thought = []
    for part in content:
        if part.type == "reasoning":
            thought.append(part.reasoning)
        elif part.type == "text":
            blocks.append(TextBlock(type="text", text=part.text))
        else:
            blocks.append(DataBlock.model_validate(part.model_dump(mode="json")))
    reasoning = "\n\n".join(thought) or None
    if len(blocks) == 1 and isinstance(blocks[0], TextBlock):
        return blocks[0].text, reasoning
    return tuple(blocks) or "", reasoning


def _add_inspect_usage(conversation: Conversation, given: Any) -> None:
    """Add the usage of each call from the model events, which are matched by message id."""
    outputs = {
        event.output.message.id: event
        for event in given.events
        if event.event == "model" and event.output.choices
    }
    for place, call in enumerate(conversation.calls):
        message = conversation.messages[call.message_index or 0]
        event = outputs.get((message.details or {}).get("id"))
        if event is None:
            continue
        used = event.output.usage
        update: dict[str, Any] = {"finish_reason": event.output.stop_reason, "error": event.error}
        if used is not None:
            # Providers differ in whether the input includes cached tokens; use the total.
            update["usage"] = Usage(
                input_tokens=max(used.total_tokens - used.output_tokens, used.input_tokens),
                output_tokens=used.output_tokens,
                cached_tokens=used.input_tokens_cache_read,
                reasoning_tokens=used.reasoning_tokens,
                stored=used.model_dump(mode="json", exclude_none=True),
            )
        conversation.calls[place] = call.model_copy(update=update)


def _count_unknown_inspect_kinds(conversation: Conversation, given: Any) -> None:
    """Count roles, parts and events of later Inspect versions that this reader does not know."""
    for message in given.messages:
        if message.role not in _INSPECT_ROLES:
            conversation.unknown_kinds[f"message of role {message.role}"] += 1
        for part in () if isinstance(message.content, str) else message.content:
            if part.type not in _INSPECT_PARTS:
                conversation.unknown_kinds[f"content {part.type}"] += 1
    for event in given.events:
        if event.event not in _INSPECT_EVENTS:
            conversation.unknown_kinds[f"event {event.event}"] += 1


def _convert_scores(given: Any) -> EvaluateResult | None:
    """Convert every scorer's number to a metric; the first scorer gives the score."""
    metrics: dict[str, Metric] = {}
    for name, score in (given.scores or {}).items():
        value = score.value
        if isinstance(value, bool | int | float):
            number = float(value) if isfinite(value) else None
        else:
            number = _GRADES.get(value) if isinstance(value, str) else None
        metrics[name] = Metric(name, number, reason=score.explanation)
    if not metrics:
        return None
    first = next(iter(metrics.values()))
    if first.score is None:
        return EvaluateResult(
            score=None, is_score_valid=False, reason=first.reason or "no number", metrics=metrics
        )
    return EvaluateResult(score=first.score, reason=first.reason, metrics=metrics)
