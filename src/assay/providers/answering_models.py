"""Record which model answered, by the name that the API returned."""

from collections.abc import Sequence
from contextvars import ContextVar

from assay.types import Message, ToolSpec

from .client import ModelClient
from .reply import Reply

reported_models: ContextVar[set[str] | None] = ContextVar("reported_models", default=None)
"""The names of the models that answered within a task. None: not recorded."""


class ModelNameRecorder:
    """A client that records the model name that the API returns."""

    def __init__(self, client: ModelClient) -> None:
        self.endpoint = client.endpoint
        self._client = client

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message."""
        reply = await self._client.complete(messages, tools=tools, seed=seed)
        names = reported_models.get()
        if names is not None and reply.call.model:
            names.add(reply.call.model)
        return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
