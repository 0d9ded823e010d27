"""The model behind the gateway: its settings, and requests in its own API."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from assay.errors import ConfigError, WireError
from assay.formats import AnswerPart, GeminiStream, ModelRequest, StreamEvent, read_gemini_parts
from assay.providers import (
    Client,
    ClientSettings,
    ModelClient,
    RequestTemplate,
    build_azure_path,
    build_gemini_path,
    build_request_template,
    connect,
    find_provider,
    list_header_secrets,
)
from assay.types import Endpoint

from .dialects import DIALECTS, AnswerStream, Dialect

_SETTING_FIELDS = ("temperature", "top_p", "max_tokens", "stop", "reasoning_effort", "thinking")
# An agent uses few combinations of settings; one that varies them must not fill the memory.
_MAX_CLIENTS = 32
# Wishes that other APIs have no equivalent for. They are counted as dropped.
_OTHER_HINTS = ("thinking", "reasoning_effort", "parallel_tool_calls")
_HINTS = {
    "openai": ("thinking",),
    "openai-responses": ("thinking",),
    "anthropic": ("reasoning_effort",),
}
_DEFAULT_TIMEOUT_S = 600.0
_TOKEN_ID_PARAMS = ("return_token_ids", "return_tokens_as_token_ids", "logprobs")
_SAMPLING_NAMES = frozenset(
    {"temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens"}
    | {"stop", "stop_sequences", "seed", "reasoning_effort", "parallel_tool_calls"}
    | {"presence_penalty", "frequency_penalty", "logprobs", "top_logprobs", "return_token_ids"}
)
_MIN_KEY_CHARS, _MIN_VALUE_CHARS = 4, 8
# Words that are given to servers that require no key, in any case.
_KEYS_OF_OPEN_SERVERS = frozenset(
    {
        "dummy",
        "empty",
        "fake",
        "lm-studio",
        "local",
        "none",
        "not-needed",
        "null",
        "ollama",
        "unused",
    }
)
_CREDENTIAL_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key"})


@dataclass(frozen=True)
class StreamSource:
    """How the model of another API is asked for a stream, and how that is read."""

    path: str
    query: str
    more: bytes
    """The end of a request's JSON object, with the members that ask for a stream."""

    read_parts: Callable[[StreamEvent], Iterator[AnswerPart]]
    make_stream: Callable[[], AnswerStream]


class Upstream:
    """One model, as requests of any API reach it."""

    def __init__(self, client: ModelClient) -> None:
        self.client = client
        self.endpoint: Endpoint = client.endpoint
        protocol = find_provider(self.endpoint.provider).protocol
        self.protocol = "openai" if protocol == "azure" else protocol
        """The API of the model. Azure differs from OpenAI in its addresses only."""

        self._clients: dict[str, Client] = {}
        """By the settings that they add to those of the endpoint; the last used one is last."""

        self._in_use: Counter[Client] = Counter()
        # A client that is not ours may do anything with a request: it is only called.
        self._is_ours = isinstance(client, Client)

    @property
    def wants_token_ids(self) -> bool:
        """Whether the answers are to contain the sampled tokens, which streams may omit."""
        given = self.endpoint.extra_params
        return any(given.get(name) for name in _TOKEN_ID_PARAMS)

    @property
    def secrets(self) -> list[str]:
        """The keys that requests to the model contain."""
        found = [self.endpoint.api_key, self.endpoint.oauth_token]
        if self._is_ours and find_provider(self.endpoint.provider).needs_address:
            template = build_request_template(self.endpoint, "", timeout_s=_DEFAULT_TIMEOUT_S)
            named = template.headers.items()
            credentials = {k: v for k, v in named if k.lower() in _CREDENTIAL_HEADERS}
            found += [value.rpartition(" ")[2] for value in credentials.values()]
            # A header of any name may contain a key. Short values may be words of a conversation.
            others = {k: v for k, v in named if k not in credentials}
            values = list_header_secrets(self.endpoint, others)
            found += [value for value in values if len(value) >= _MIN_VALUE_CHARS]
        known = {
            secret
            for secret in found
            if len(secret) >= _MIN_KEY_CHARS and secret.casefold() not in _KEYS_OF_OPEN_SERVERS
        }
        # The longest first: one may contain another.
        return sorted(known, key=len, reverse=True)

    def speaks(self, dialect: Dialect) -> bool:
        """Whether the model has the same API as the agent."""
        return self._is_ours and self.protocol == dialect.protocol

    def build_template(self, path: str) -> RequestTemplate | None:
        """Return address and headers for a path of the model's API; None without an address."""
        if not self._is_ours or not find_provider(self.endpoint.provider).needs_address:
            return None
        # Anthropic's address is without /v1.
        path = f"/v1{path}" if self.protocol == "anthropic" and path else path
        if find_provider(self.endpoint.provider).protocol == "azure":
            path = build_azure_path(self.endpoint, path)
        timeout_s = self.endpoint.timeout_s or _DEFAULT_TIMEOUT_S
        return build_request_template(self.endpoint, path, timeout_s=timeout_s)

    def find_stream(self) -> StreamSource | None:
        """Return how the model streams to agents of other APIs; None if it answers as a whole."""
        if not self._is_ours or self.wants_token_ids:
            return None
        if self.protocol == "gemini":
            path = build_gemini_path(self.endpoint.model, method="streamGenerateContent")
            return StreamSource(path, "alt=sse", b"}", read_gemini_parts, GeminiStream)
        for dialect in DIALECTS:
            if dialect.protocol == self.protocol:
                # Without the option, a stream of chat completions has no usage.
                usage = b',"stream_options":{"include_usage":true}'
                more = b',"stream":true%s}' % (usage if self.protocol == "openai" else b"")
                reads = dialect.read_parts, dialect.make_stream
                return StreamSource(dialect.path, "", more, *reads)
        return None

    def list_overrides(self, dialect: Dialect, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of the endpoint that replace those of a request in its own API."""
        endpoint = self.endpoint
        named = dialect.setting_names
        found = {
            named[name]: value
            for name in _SETTING_FIELDS
            if (value := getattr(endpoint, name)) is not None and name in named
        }
        most = named["max_tokens"]
        if most in found and "max_completion_tokens" in body:
            found["max_completion_tokens"] = found.pop(most)
        if endpoint.seed is not None and "seed" in named:
            found["seed"] = endpoint.seed
        if endpoint.reasoning_effort is not None and dialect.protocol == "openai-responses":
            given = body.get("reasoning")
            others = given if isinstance(given, Mapping) else {}
            found["reasoning"] = {**others, "effort": found.pop("reasoning")}
        return {**found, **endpoint.extra_params}

    def read_sampling(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the sampling settings in a request."""
        return {
            name: value
            for name, value in body.items()
            if name in _SAMPLING_NAMES and isinstance(value, str | int | float | list)
        }

    def choose_client(self, request: ModelRequest) -> tuple[ModelClient, dict[str, Any]]:
        """Return a client with the settings of a request, and the settings that it replaces.

        Settings of the endpoint override those of the request. Raises `WireError` for a setting
        that the model's API cannot represent. `keep_open` is for the time of its use.
        """
        given = {
            name: value
            for name, value in request.settings.items()
            if name not in _SETTING_FIELDS or getattr(self.endpoint, name) is None
        }
        given.pop("seed", None)
        for name in _HINTS.get(self.protocol, _OTHER_HINTS):
            given.pop(name, None)
        if not self._is_ours:
            # Such a client fixes its own sampling. What is asked of the model must not differ.
            for name in ("tool_choice", "response_schema"):
                if given.get(name) not in (None, "auto"):
                    raise WireError(f"the model cannot be asked with `{name}`", where=name)
            return self.client, {}
        return self._find_client(given), given

    def choose_seed(self, request: ModelRequest, session_seed: int | None) -> int | None:
        """Return the seed of a request: its own, else that of the session or of the endpoint."""
        own: int | None = request.settings.get("seed")
        if session_seed is not None and (own is None or not self._is_ours):
            # Also in place of the agent's own: all rollouts of a training would be equal with that.
            return session_seed
        return self.endpoint.seed if own is None else own

    def _build_endpoint(self, given: Mapping[str, Any]) -> Endpoint:
        fields = {name: value for name, value in given.items() if name in _SETTING_FIELDS}
        extra = {
            **write_protocol_settings(self.protocol, given),
            **self.endpoint.extra_params,
        }
        settings = self.endpoint.to_dict(exclude_secrets=False)
        return Endpoint.model_validate({**settings, **fields, "extra_params": extra})

    def _find_client(self, given: Mapping[str, Any]) -> Client:
        key = repr(sorted(given.items()))
        found = self._clients.pop(key, None)
        if found is None:
            endpoint = self._build_endpoint(given) if given else self.endpoint
            # Errors reach the agent, whose own client retries.
            endpoint = endpoint.model_copy(update={"max_retries": 0})
            try:
                found = connect(endpoint, ClientSettings(max_retries=0))
            except ConfigError as error:
                raise WireError(error.message, where=error.where, hint=error.hint) from error
            if isinstance(self.client, Client):
                found.limiter = self.client.limiter
        self._clients[key] = found
        return found

    @asynccontextmanager
    async def keep_open(self, client: ModelClient) -> AsyncIterator[None]:
        """Keep a client that was chosen open for the block."""
        if not isinstance(client, Client):
            yield
            return
        self._in_use[client] += 1
        try:
            yield
        finally:
            self._in_use[client] -= 1
            if len(self._clients) > _MAX_CLIENTS:
                await self._close_surplus()

    async def _close_surplus(self) -> None:
        # Those that were not used for the longest time, and none that is in use.
        idle = [key for key, client in self._clients.items() if not self._in_use[client]]
        surplus = idle[: len(self._clients) - _MAX_CLIENTS]
        await self._close_clients([self._clients.pop(key) for key in surplus])

    async def close(self) -> None:
        """Close the clients that were made for requests, not the one that was passed."""
        clients = list(self._clients.values())
        self._clients.clear()
        await self._close_clients(clients)

    async def _close_clients(self, clients: Iterable[Client]) -> None:
        async with AsyncExitStack() as stack:
            # Also the others if one of them fails to close.
            for client in clients:
                self._in_use.pop(client, None)
                stack.push_async_callback(client.close)


def write_protocol_settings(protocol: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Write the settings that are not fields of an `Endpoint` as parameters of an API."""
    written: dict[str, Any] = {}
    choice, schema = given.get("tool_choice"), given.get("response_schema")
    parallel = given.get("parallel_tool_calls")
    if protocol == "openai":
        if choice is not None:
            named = {"type": "function", "function": choice}
            written["tool_choice"] = named if isinstance(choice, dict) else choice
        if parallel is not None:
            written["parallel_tool_calls"] = parallel
        if schema is not None:
            named = {"type": "json_schema", "json_schema": schema}
            written["response_format"] = named if schema["schema"] else {"type": "json_object"}
    elif protocol == "openai-responses":
        if choice is not None:
            named = {"type": "function", **choice} if isinstance(choice, dict) else choice
            written["tool_choice"] = named
        if parallel is not None:
            written["parallel_tool_calls"] = parallel
        if schema is not None:
            form = (
                {"type": "json_schema", **schema} if schema["schema"] else {"type": "json_object"}
            )
            written["text"] = {"format": form}
    elif protocol == "anthropic":
        if choice is not None or parallel is False:
            written["tool_choice"] = _write_anthropic_choice(choice, parallel)
        if schema is not None:
            if not schema["schema"]:
                raise WireError(
                    "Anthropic needs a schema for JSON answers", where="response_format"
                )
            form = {"type": "json_schema", "schema": schema["schema"]}
            written["output_config"] = {"format": form}
    elif protocol == "gemini":
        return _write_gemini_settings(choice, schema, given.get("top_k"))
    elif choice not in (None, "auto") or schema is not None:
        name = "tool_choice" if schema is None else "response_format"
        raise WireError(f"the model cannot be asked with `{name}`", where=name)
    if given.get("top_k") is not None:
        if protocol.startswith("openai"):
            raise WireError("OpenAI's API has no setting `top_k`", where="top_k")
        written["top_k"] = given["top_k"]
    return written


def _write_gemini_settings(choice: Any, schema: Any, top_k: Any) -> dict[str, Any]:
    config: dict[str, Any] = {} if top_k is None else {"topK": top_k}
    if schema is not None:
        config["responseMimeType"] = "application/json"
        if schema["schema"]:
            config["responseJsonSchema"] = schema["schema"]
    written: dict[str, Any] = {"generationConfig": config} if config else {}
    if choice not in (None, "auto"):
        calling: dict[str, Any] = {"mode": "NONE" if choice == "none" else "ANY"}
        if isinstance(choice, dict):
            calling["allowedFunctionNames"] = [choice["name"]]
        written["toolConfig"] = {"functionCallingConfig": calling}
    return written


def _write_anthropic_choice(choice: Any, parallel: Any) -> dict[str, Any]:
    if isinstance(choice, dict):
        written: dict[str, Any] = {"type": "tool", "name": choice["name"]}
    else:
        written = {"type": {"required": "any", "none": "none"}.get(choice, "auto")}
    if parallel is False and written["type"] != "none":
        written["disable_parallel_tool_use"] = True
    return written
