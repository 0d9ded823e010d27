"""The providers by name: protocol, address and environment variable of the key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from assay.errors import ConfigError
from assay.registry import find_plugin, list_names, list_plugin_names
from assay.types import Endpoint

from .reply import ClientSettings

if TYPE_CHECKING:
    from .client import ModelClient

WireProtocol = Literal[
    "openai",
    "openai-responses",
    "anthropic",
    "gemini",
    "azure",
    "bedrock",
    "mock",
    "local",
    "plugin",
]


@dataclass(frozen=True)
class Provider:
    """The defaults of a provider, which an endpoint overrides."""

    protocol: WireProtocol
    api_base: str | None = None
    """None: the endpoint must set it."""

    key_variable: str | None = None
    """The environment variable of the key. None: a key is passed or not needed."""

    connect: "Callable[[Endpoint, ClientSettings], ModelClient] | None" = None
    """Builds the client, for the protocol `plugin` only."""

    key_header: str = "Authorization"
    """The header of the key. `Authorization` sends it as a bearer token."""

    other_key_variable: str | None = None
    """The variable of the key if `key_variable` is not set."""

    address_variable: str | None = None
    """The environment variable of the address, where each account has its own."""

    @property
    def in_process(self) -> bool:
        """Whether its models answer in this process, and so have no address."""
        return self.protocol in ("mock", "local")

    @property
    def needs_address(self) -> bool:
        """Whether requests go to an address that the endpoint or the provider sets."""
        return self.protocol not in ("bedrock", "mock", "local", "plugin")

    @property
    def requires_own_key(self) -> bool:
        """Whether a key is required even at an address that the endpoint sets."""
        return self.protocol == "azure"

    @property
    def key_variables(self) -> tuple[str, ...]:
        """The environment variables of the key, the preferred one first."""
        return tuple(filter(None, (self.key_variable, self.other_key_variable)))


PROVIDERS = {
    "openai": Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Provider(
        "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY", key_header="x-api-key"
    ),
    "gemini": Provider(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        "GEMINI_API_KEY",
        key_header="x-goog-api-key",
        other_key_variable="GOOGLE_API_KEY",
    ),
    "azure": Provider(
        "azure",
        key_variable="AZURE_OPENAI_API_KEY",
        key_header="api-key",
        address_variable="AZURE_OPENAI_ENDPOINT",
    ),
    # Without a key, requests are signed with the credentials that boto3 finds.
    "bedrock": Provider("bedrock", key_variable="AWS_BEARER_TOKEN_BEDROCK"),
    "openai-responses": Provider("openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "openrouter": Provider("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "openai-compatible": Provider("openai"),
    "vllm": Provider("openai", "http://127.0.0.1:8000/v1"),
    "sglang": Provider("openai", "http://127.0.0.1:30000/v1"),
    "llamacpp": Provider("openai", "http://127.0.0.1:8080/v1"),
    "ollama": Provider("openai", "http://127.0.0.1:11434/v1"),
    "local": Provider("local"),
    "mock": Provider("mock"),
}


def list_providers() -> list[str]:
    """Return the names of all providers, those of plug-ins included."""
    return list_names("assay.providers", PROVIDERS)


def is_provider(name: str) -> bool:
    """Whether a provider has this name. Plug-ins are not imported."""
    return name in PROVIDERS or name in list_plugin_names("assay.providers")


def find_provider(name: str) -> Provider:
    """Return the provider of a name. Raises `ConfigError` if it is unknown.

    A plug-in is a `Provider`, or a function that takes an endpoint and the client settings and
    returns a `ModelClient`.
    """
    if (found := PROVIDERS.get(name)) is not None:
        return found
    plugin = find_plugin("assay.providers", name)
    if plugin is None:
        raise ConfigError(
            f"{name!r} is not a provider; choose one of {', '.join(list_providers())}",
            where="Endpoint.provider",
            hint="for a server with OpenAI's protocol, use 'openai-compatible' with an api_base",
        )
    if isinstance(plugin.value, Provider):
        return plugin.value
    if not callable(plugin.value):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the provider is of type `{kind}`, not a Provider or a function")
    return Provider("plugin", connect=plugin.value)
