"""Detect a full context by the error of a provider, or by the finish reason."""

import re

from assay.errors import EndpointError
from assay.types import ModelCall

_CONTEXT_ERROR_PATTERN = re.compile(
    r"context[ _](length|window|size)"  # OpenAI and those that copy it, vLLM, llama.cpp, in-process
    r"|prompt is too long|exceed context limit"  # Anthropic, without and with `max_tokens`
    r"|longer than the maximum model length"  # vLLM's engine
    r"|tokens \+ `?max_new_tokens`? must be <="  # text-generation-inference
    r"|input is too long"  # Bedrock
    r"|input token count.{0,40}exceeds"  # Gemini
    r"|reduce the length of (the|your) (messages|prompt|input)",
    re.IGNORECASE,
)


def is_context_length_error(error: BaseException) -> bool:
    """Whether a model rejected a conversation for its length."""
    # Providers share no error code for it: only the message identifies it.
    if not isinstance(error, EndpointError) or error.retryable:
        return False
    return _CONTEXT_ERROR_PATTERN.search(error.message) is not None


def fills_context(call: ModelCall) -> bool:
    """Whether an answer was truncated by a full context, not by its own limit."""
    if call.finish_reason == "length":
        # Set by models in this process, which know both limits.
        return bool((call.model_extra or {}).get("context_full"))
    return call.finish_reason == "model_context_window_exceeded"  # Anthropic
