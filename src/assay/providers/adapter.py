"""The protocol of provider adapters, and the settings and checks that all of them share."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from pydantic import ValidationError

from assay.errors import ConfigError, WireError
from assay.formats import Dropped
from assay.types import Endpoint, Message, ModelCall, ToolSpec, validate

from .reply import Reply

READ_ERRORS = (ValidationError, WireError, TypeError)
"""What reading an answer of another shape raises."""

_SAMPLING_FIELDS = ("temperature", "top_p", "max_tokens", "stop", "thinking", "reasoning_effort")
_RESERVED_PARAMS = ("messages", "model", "stream", "stream_options")


class Attempt(NamedTuple):
    """The attempt that returned an answer."""

    latency_s: float
    number: int
    seed: int | None
    message_index: int
    """The index of the answer among the messages."""

    lost: Mapping[str, int] | None
    """Counts of fields that the provider's format cannot represent, by kind."""

    def build_call(self, fields: dict[str, Any]) -> ModelCall:
        """Return the record of the call, with the fields that an adapter read."""
        fields |= {
            "latency_s": self.latency_s,
            "attempts": self.number,
            "message_index": self.message_index,
        }
        if self.lost:
            fields["lost"] = self.lost
        return validate(ModelCall, fields)


class ProviderAdapter(Protocol):
    """Translates between messages and the protocol of one provider."""

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[Any, Mapping[str, int] | None]:
        """Build the request, and count the fields that it cannot represent."""

    async def send(self, request: Any) -> Any:
        """Make one attempt. Raises `AttemptError`."""

    def read(self, answer: Any, attempt: Attempt) -> Reply:
        """Parse the answer. Raises `AttemptError` if it contains no reply."""

    async def close(self) -> None:
        """Release connections and models."""


@runtime_checkable
class InProcessAdapter(Protocol):
    """An adapter for a model in this process, which knows its own concurrency."""

    at_once: int
    """The number of requests that it handles concurrently."""


async def check_tools(client: object, tools: Sequence[ToolSpec]) -> None:
    """Raise `ConfigError` if a client or adapter cannot offer tools to its model.

    One without a method `check_tools` is assumed to support them.
    """
    if getattr(type(client), "check_tools", None) is not None:
        await client.check_tools(tools)  # type: ignore[attr-defined]  # checked one line above


def describe_read_error(error: Exception) -> str:
    """Describe one of the `READ_ERRORS` without values, which may be secret."""
    if isinstance(error, ValidationError):
        return str(error.errors()[0]["msg"])
    return error.message if isinstance(error, WireError) else "a value has the wrong type"


def count_dropped_fields(lost: Iterable[Dropped]) -> dict[str, int] | None:
    """Count dropped fields by kind."""
    # Counts, not entries: one entry each would bloat the record of a long conversation.
    return dict(Counter(loss.what for loss in lost)) or None


def collect_sampling(endpoint: Endpoint) -> dict[str, Any]:
    """Collect the settings in effect, without extra parameters that may be secret."""
    plain = endpoint.to_dict()
    sampling = {name: plain[name] for name in _SAMPLING_FIELDS if name in plain}
    return {**sampling, **plain.get("extra_params", {})}


def check_extra_params(endpoint: Endpoint) -> None:
    """Raise `ConfigError` for extra parameters that would change the shape of the answer."""
    given = endpoint.extra_params
    where = f"{endpoint.provider}:{endpoint.model}"
    for name in _RESERVED_PARAMS:
        if name in given and given[name] not in (None, False):
            raise ConfigError(f"`{name}` cannot be set in extra_params", where=where)
    if given.get("n") not in (None, 1):
        raise ConfigError(
            f"extra_params sets n={given['n']!r}, but a reply is one message",
            where=where,
            hint="call the model several times instead, each time with another seed",
        )


def check_headers(endpoint: Endpoint) -> None:
    """Raise `ConfigError` for headers of an endpoint that cannot be sent."""
    for name, value in endpoint.headers.items():
        token = name.replace("-", "").replace("_", "")
        if not token.isascii() or not token.isalnum() or not value.isprintable():
            # The value is not shown: it may be a key with a line break in it.
            raise ConfigError(
                f"the header {name!r} is invalid",
                where=f"{endpoint.provider}:{endpoint.model}",
                hint="use letters, digits and hyphens in the name, one printable line as the value",
            )


def to_function_tools(tools: Iterable[ToolSpec]) -> list[dict[str, Any]]:
    """Convert tools to the form of OpenAI's API, which chat templates expect too."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                **(tool.__pydantic_extra__ or {}),
            },
        }
        for tool in tools
    ]
