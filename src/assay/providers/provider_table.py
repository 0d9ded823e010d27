"""The providers by name: protocol, address and environment variable of the key."""

from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError

WireProtocol = Literal["openai", "anthropic", "mock", "local"]


@dataclass(frozen=True)
class Provider:
    """The defaults of a provider, which an endpoint overrides."""

    protocol: WireProtocol
    api_base: str | None = None
    """None: the endpoint must set it."""

    key_variable: str | None = None
    """The environment variable of the key. None: a key is passed or not needed."""

    @property
    def in_process(self) -> bool:
        """Whether its models answer in this process, and so have no address."""
        return self.protocol in ("mock", "local")


PROVIDERS = {
    "openai": Provider("openai", "https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Provider("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "openrouter": Provider("openai", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "openai-compatible": Provider("openai"),
    "vllm": Provider("openai", "http://127.0.0.1:8000/v1"),
    "sglang": Provider("openai", "http://127.0.0.1:30000/v1"),
    "llamacpp": Provider("openai", "http://127.0.0.1:8080/v1"),
    "ollama": Provider("openai", "http://127.0.0.1:11434/v1"),
    "local": Provider("local"),
    "mock": Provider("mock"),
}


def find_provider(name: str) -> Provider:
    """Return the provider of a name. Raises `ConfigError` if it is unknown."""
    found = PROVIDERS.get(name)
    if found is None:
        raise ConfigError(
            f"{name!r} is not a provider; choose one of {', '.join(PROVIDERS)}",
            where="Endpoint.provider",
            hint="for a server with OpenAI's protocol, use 'openai-compatible' with an api_base",
        )
    return found
