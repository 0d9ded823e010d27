"""The event stream of Gemini's API, read for agents of other APIs."""

from collections.abc import Iterator, Mapping
from typing import Any

from .answer_writer import AnswerPart, write_json_text
from .conversion import expect_mapping, expect_sequence
from .server_sent_events import StreamEvent, parse_event_json


def read_gemini_parts(event: StreamEvent) -> Iterator[AnswerPart]:
    """Yield the parts of the answer in one chunk. Raises `WireError` if it has another shape."""
    chunk = parse_event_json(event.data) if event.data else {}
    if isinstance(model := chunk.get("modelVersion"), str):
        yield AnswerPart("start", model)
    for part in _read_candidate(chunk)[1]:
        call = part.get("functionCall")
        if isinstance(call, Mapping):
            # Calls arrive as a whole.
            given = write_json_text(call.get("args") or {})
            yield AnswerPart("call", given, 0, call.get("id"), str(call.get("name") or ""))
            yield AnswerPart("end")
        elif isinstance(text := part.get("text"), str) and text:
            yield AnswerPart("reasoning" if part.get("thought") else "text", text)


class GeminiStream:
    """Assembles the chunks of a stream to the body that the same request would have returned."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._candidate: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._logprobs: dict[str, list[Any]] = {}
        self.error: object = None
        """The error object that the server sent instead of the rest."""

    @property
    def is_complete(self) -> bool:
        """Whether the model ended its answer, or the prompt was blocked."""
        return bool(self._candidate.get("finishReason") or self._answer.get("promptFeedback"))

    def add(self, event: StreamEvent) -> None:
        """Add one chunk. Raises `WireError` if it has another shape."""
        if not event.data:
            return
        chunk = parse_event_json(event.data)
        self.error = chunk.get("error") or self.error
        candidate, parts = _read_candidate(chunk)
        self._answer |= {key: value for key, value in chunk.items() if key != "candidates"}
        given = expect_mapping(candidate.pop("logprobsResult", None) or {}, "logprobsResult")
        # Each chunk has those of its own tokens.
        for key, values in given.items():
            if isinstance(values, list):
                self._logprobs.setdefault(key, []).extend(values)
        self._candidate |= candidate
        self._parts += parts

    def build_answer(self) -> dict[str, Any]:
        """Return the body of the response, with continued texts as one part each."""
        if not self._candidate:
            return self._answer
        joined: list[dict[str, Any]] = []
        texts: list[str] = []
        for part in self._parts:
            # A signature belongs to its own part, which must come back unchanged.
            plain = part.keys() <= {"text", "thought"} and isinstance(part.get("text"), str)
            kind = {**part, "text": ""} if plain else None
            if texts and kind == joined[-1]:
                texts.append(part["text"])
                continue
            if texts:
                joined[-1]["text"] = "".join(texts)
            joined.append(kind or part)
            texts = [part["text"]] if plain else []
        if texts:
            joined[-1]["text"] = "".join(texts)
        content = {"role": "model", "parts": joined}
        candidate = {**self._candidate, "content": content}
        if self._logprobs:
            candidate["logprobsResult"] = self._logprobs
        return {**self._answer, "candidates": [candidate]}


def _read_candidate(chunk: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the first candidate of a chunk without its content, and the parts of that."""
    candidates = expect_sequence(chunk.get("candidates") or [], "candidates")
    if not candidates:
        return {}, []
    candidate = dict(expect_mapping(candidates[0], "candidates[0]"))
    content = expect_mapping(candidate.pop("content", None) or {}, "content")
    parts = expect_sequence(content.get("parts") or [], "content.parts")
    return candidate, [dict(expect_mapping(part, "content.parts")) for part in parts]
