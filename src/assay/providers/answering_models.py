"""Which model answered, by the name that its API returned."""

from collections.abc import Sequence
from contextvars import ContextVar

from assay.types import Message, ToolSpec

from .client import ModelClient
from .reply import Reply

reported_models: ContextVar[set[str] | None] = ContextVar("models_noted", default=None)
"""Where the models that answer within a task are noted."""


class ModelTrackingClient:
    """A client that notes what the API called the model that answered."""

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
        """The model's next message."""
        reply = await self._client.complete(messages, tools=tools, seed=seed)
        noted = reported_models.get()
        if noted is not None and reply.call.model:
            noted.add(reply.call.model)
        return reply

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.close()
