"""The adapter for the clients of plug-ins, which make their own requests and retries."""

from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import AssayError, ConfigError, EndpointError
from assay.types import Endpoint, Message, ToolSpec

from .adapter import Attempt, check_tools
from .client import ModelClient
from .prices import Price, add_cost
from .provider_table import find_provider
from .reply import ClientSettings, Reply


class PluginAdapter:
    """Passes calls to the client of a plug-in. Retries are the client's own."""

    def __init__(self, endpoint: Endpoint, settings: ClientSettings, price: Price | None) -> None:
        self._where = f"{endpoint.provider}:{endpoint.model}"
        self._price = price
        build = find_provider(endpoint.provider).connect
        if build is None:
            raise ConfigError(
                f"the provider {endpoint.provider!r} has the protocol 'plugin', but no `connect`",
                where=self._where,
            )
        try:
            self._client: ModelClient = build(endpoint, settings)
        except AssayError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the plug-in cannot build a client: {type(error).__name__}: {error}",
                where=self._where,
            ) from error
        for name in ("complete", "close"):
            if not callable(getattr(self._client, name, None)):
                raise ConfigError(
                    f"the plug-in returned a `{type(self._client).__name__}`, which has no "
                    f"method `{name}`",
                    where=self._where,
                    hint="its function must return a ModelClient",
                )

    def write(
        self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int | None
    ) -> tuple[tuple[Sequence[Message], Sequence[ToolSpec], int | None], Mapping[str, int] | None]:
        """Return the arguments of the call."""
        return (messages, tools, seed), None

    async def send(
        self, request: tuple[Sequence[Message], Sequence[ToolSpec], int | None]
    ) -> object:
        """Call the client."""
        messages, tools, seed = request
        return await self._client.complete(messages, tools=tools, seed=seed)

    def read(self, answer: object, attempt: Attempt) -> Reply:
        """Return the reply; latency, position and cost are added where they are missing."""
        if not isinstance(answer, Reply):
            raise EndpointError(
                f"the plug-in returned a `{type(answer).__name__}`, not a Reply",
                where=self._where,
                retryable=False,
            )
        call = answer.call
        known: dict[str, Any] = {"message_index": attempt.message_index}
        if call.latency_s is None:
            known["latency_s"] = attempt.latency_s
        if call.usage is not None and call.usage.cost_usd is None:
            known["usage"] = add_cost(call.usage, self._price)
        return answer._replace(call=call.model_copy(update=known))

    async def check_tools(self, tools: Sequence[ToolSpec]) -> None:
        """Raise `ConfigError` if the client cannot offer tools to its model."""
        await check_tools(self._client, tools)

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()
