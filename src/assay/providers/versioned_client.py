"""A client that records which weights of a model in training answered."""

from collections.abc import Sequence

from assay.types import Message, ToolSpec

from .client import ClientWrapper, ModelClient
from .reply import Reply


class VersionedClient(ClientWrapper):
    """Records the version of the weights in every call."""

    def __init__(self, client: ModelClient, version: str | None = None) -> None:
        super().__init__(client)
        self.version = version
        """The version that the server was last updated to."""

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        """Return the model's next message. Raises `EndpointError` if the call fails."""
        # Read before the call: an update during it may only make the answer newer.
        version = self.version
        reply = await super().complete(messages, tools=tools, seed=seed)
        if reply.call.weight_version is not None:
            return reply
        return reply._replace(call=reply.call.model_copy(update={"weight_version": version}))
