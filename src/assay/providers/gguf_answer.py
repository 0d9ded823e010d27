"""Assemble the streamed parts of an answer of llama.cpp."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .attempt_errors import AttemptError, ErrorKind


@dataclass
class GgufAnswer:
    """One answer, streamed or not."""

    content: str = ""
    reasoning: str | None = None
    calls: list[dict[str, Any]] = field(default_factory=list)
    """In OpenAI's format, with arguments as a string."""

    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    prompt: str | None = None
    """The prompt as the chat template rendered it."""

    ids: list[int] | None = None
    """The sampled ids, including the end of the turn. Only in unstreamed answers."""

    logprobs: list[float] | None = None
    """Fewer than ids if several tokens form one character."""

    def fills_context(self, max_tokens: int) -> bool:
        """Whether it was truncated below `max_tokens`, which only a full context does."""
        written = (self.usage or {}).get("completion_tokens")
        return self.finish_reason == "length" and isinstance(written, int) and written < max_tokens


def assemble_answer(parts: Sequence[Mapping[str, Any]]) -> GgufAnswer:
    """Join the parts. Raises `AttemptError` for an error or a missing finish reason."""
    answer = GgufAnswer()
    for part in parts:
        error = part.get("error")
        if isinstance(error, Mapping):
            message, hint = error.get("message", "no reason given"), None
            if error.get("type") == "exceed_context_size_error":
                hint = "shorten the conversation, or raise extra_params['context']"
            raise AttemptError(
                ErrorKind.REFUSED, f"llama.cpp rejected the request: {message}", hint=hint
            )
        answer.usage = part.get("usage") or answer.usage
        verbose = part.get("__verbose")
        if isinstance(verbose, Mapping):
            answer.prompt = verbose.get("prompt")
            answer.ids = verbose.get("tokens") or None
        for choice in part.get("choices") or []:
            _merge_choice(answer, choice)
    if answer.finish_reason is None:
        raise AttemptError(
            ErrorKind.GARBLED, "llama.cpp returned an answer without a finish reason"
        )
    return answer


def _merge_choice(answer: GgufAnswer, choice: Mapping[str, Any]) -> None:
    delta = choice.get("delta") or choice.get("message") or {}
    answer.content += delta.get("content") or ""
    if delta.get("reasoning_content"):
        answer.reasoning = (answer.reasoning or "") + delta["reasoning_content"]
    for call in delta.get("tool_calls") or []:
        _add_call(answer.calls, call)
    answer.finish_reason = choice.get("finish_reason") or answer.finish_reason
    logprobs = choice.get("logprobs")
    if "message" in choice and isinstance(logprobs, Mapping):
        answer.logprobs = [entry["logprob"] for entry in logprobs.get("content") or []]


def _add_call(calls: list[dict[str, Any]], piece: Mapping[str, Any]) -> None:
    # The first piece of a call has its name; later ones append to its arguments.
    function = piece.get("function") or {}
    index = piece.get("index", len(calls))
    if index >= len(calls):
        fields = {"name": function.get("name") or "", "arguments": function.get("arguments") or ""}
        calls.append({"id": piece.get("id") or None, "type": "function", "function": fields})
        return
    known = calls[index]["function"]
    known["name"] += function.get("name") or ""
    known["arguments"] += function.get("arguments") or ""
