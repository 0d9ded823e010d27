"""Recognizes a full context: by a provider's error, or by how an answer ended."""

import re

from assay.errors import EndpointError
from assay.types import ModelCall

_CONTEXT_ERROR_PATTERN = re.compile(
    r"context[ _](length|window|size)"  # OpenAI and those that copy it, vLLM, llama.cpp
    r"|prompt is too long|exceed context limit"  # Anthropic, without and with `max_tokens`
    r"|longer than the maximum model length"  # vLLM's engine
    r"|tokens \+ `?max_new_tokens`? must be <="  # text-generation-inference
    r"|input is too long"  # Bedrock
    r"|input token count.{0,40}exceeds"  # Gemini
    r"|reduce the length of (the|your) (messages|prompt|input)"
    r"|tokens, and the model reads \d",  # models in this process
    re.IGNORECASE,
)


def is_context_length_error(error: BaseException) -> bool:
    """Whether a model refused a conversation for its length.

    Providers have no common code for it: they are known by their words.
    """
    if not isinstance(error, EndpointError) or error.retryable:
        return False
    return _CONTEXT_ERROR_PATTERN.search(error.message) is not None


def fills_context(call: ModelCall) -> bool:
    """Whether an answer was cut off because the context was full, not by its own limit."""
    if call.finish_reason == "length":
        # Written by models in this process, which know both limits.
        return bool((call.model_extra or {}).get("context_full"))
    return call.finish_reason == "model_context_window_exceeded"  # Anthropic
