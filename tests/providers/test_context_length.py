"""Errors that say that a conversation is too long, in the words of each provider."""

import pytest

from assay.errors import EndpointError
from assay.providers.context_length import is_context_length_error


def refused(message: str) -> EndpointError:
    return EndpointError(message, status=400, retryable=False)


@pytest.mark.parametrize(
    "message",
    [
        "400: This model's maximum context length is 8192 tokens",
        "400: context_length_exceeded",
        "400: prompt is too long: 210000 tokens > 200000 maximum",
        "400: input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000",
        "400: The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
        "422: Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8192.",
        "400: Input is too long for requested model.",
        "400: The input token count (1200000) exceeds the maximum number of tokens allowed",
        "llama.cpp rejected the request: the request exceeds the available context size",
        "the prompt has 300 tokens: the context length is 256",
    ],
)
def test_the_words_of_each_provider_are_known(message: str) -> None:
    assert is_context_length_error(refused(message))


@pytest.mark.parametrize(
    "error",
    [
        refused("400: no such sampling setting"),
        EndpointError("503: the context window service is down"),
        ValueError("prompt is too long"),
    ],
)
def test_anything_else_is_another_error(error: Exception) -> None:
    assert not is_context_length_error(error)
