"""A stand-in for a paid model: it says what it was told to say."""

from collections.abc import Sequence

from assay.providers import Reply
from assay.types import Endpoint, Message, ModelCall, ToolSpec, Usage


class Scripted:
    """A model that says what it was told to say, and remembers what it was asked."""

    def __init__(self, *replies: Message | Exception, usage: Usage | None = None) -> None:
        self.endpoint = Endpoint(provider="mock", model="scripted")
        self.asked: list[list[Message]] = []
        self.seeds: list[int | None] = []
        self._replies = list(replies)
        self._usage = usage

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        self.asked.append(list(messages))
        self.seeds.append(seed)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return Reply(reply, ModelCall(model="scripted", usage=self._usage, finish_reason="stop"))

    async def close(self) -> None:
        return None
