"""What `agent=` accepts: agents, functions, models, commands, URLs and references to code."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeGuard
from urllib.parse import parse_qsl, urlsplit

from assay.errors import ConfigError
from assay.providers import PROVIDERS, parse_model
from assay.scorers import import_code_ref, is_code_ref
from assay.types import Endpoint

from .agent import Agent
from .command_agent import COMMAND_PREFIX, CommandAgent
from .function_agent import FunctionAgent

AgentRef = Agent | Endpoint | str | Callable[..., object]
"""An agent, or something that names one: see `resolve_agent`."""

_URL_PREFIXES = ("http://", "https://")
# Paths of servers that speak the chat-completions protocol.
_CHAT_PATHS = ("/v1", "/chat/completions")
_URL_SETTINGS = ("answer", "key_env", "model", "request")
_AGENT_HINT = (
    "pass provider:model, http://host/path, cmd:COMMAND, FILE.py:function or module:function"
)


def resolve_agent(ref: object, *, where: str = "agent") -> Agent | Endpoint:
    """Return the agent that `ref` names, or the endpoint of a model.

    `ref` is an `Agent`, an `Endpoint`, a function that takes the sample, or a string:
    `provider:model[@URL]`, `cmd:COMMAND`, `http://host/v1` (a server with the chat-completions
    protocol), `http://host/ask#answer=PATH` (any JSON service), `FILE.py:function` or
    `module:function`. Raises `ConfigError` for anything else.
    """
    if isinstance(ref, Endpoint) or is_agent(ref):
        return ref
    if isinstance(ref, str):
        return _resolve_agent_string(ref.strip(), where)
    if callable(ref) and not isinstance(ref, type):
        return FunctionAgent(ref)
    raise ConfigError(f"`agent` cannot be of type `{type(ref).__name__}`", where=where)


def is_model_ref(ref: object) -> bool:
    """Whether `ref` is an endpoint or a string that names a model."""
    return isinstance(ref, Endpoint) or (
        isinstance(ref, str)
        and not ref.startswith(COMMAND_PREFIX)
        and (ref.startswith(_URL_PREFIXES) or ref.partition(":")[0] in PROVIDERS)
        and isinstance(resolve_agent(ref), Endpoint)
    )


def is_agent(value: object) -> TypeGuard[Agent]:
    """Whether an object has the attributes of the `Agent` protocol."""
    return (
        not isinstance(value, type)
        and callable(getattr(value, "run", None))
        and isinstance(getattr(value, "name", None), str)
        and isinstance(getattr(value, "identity", None), str)
    )


def _resolve_agent_string(text: str, where: str) -> Agent | Endpoint:
    if text.startswith(COMMAND_PREFIX):
        return CommandAgent(text.removeprefix(COMMAND_PREFIX).strip())
    if text.startswith(_URL_PREFIXES):
        return _resolve_url(text, where)
    if text.partition(":")[0] in PROVIDERS:
        return parse_model(text)
    if is_code_ref(text):
        found = import_code_ref(text, where=where)
        if isinstance(found, str):
            raise ConfigError(f"{text!r} is a string, not an agent", where=where)
        if callable(found) and not isinstance(found, type) and not is_agent(found):
            return FunctionAgent(found, text)
        return resolve_agent(found, where=where)
    # The string is not shown: it may be an address with a key.
    raise ConfigError("the string does not name an agent", where=where, hint=_AGENT_HINT)


def _resolve_url(text: str, where: str) -> Agent | Endpoint:
    url, _, fragment = text.partition("#")
    try:
        settings = dict(parse_qsl(fragment, strict_parsing=True)) if fragment else {}
    except ValueError:
        settings = {"": ""}
    if unknown := settings.keys() - set(_URL_SETTINGS):
        raise ConfigError(
            f"the part after # of the agent's address has the unknown setting {min(unknown)!r}",
            where=where,
            hint=f"settings are NAME=VALUE, joined by &: {', '.join(_URL_SETTINGS)}",
        )
    path = urlsplit(url).path.rstrip("/")
    if path.endswith(_CHAT_PATHS) and not settings.keys() & {"answer", "request"}:
        base = url.removesuffix("/").removesuffix("/chat/completions")
        model = settings.get("model", "default")
        return parse_model(
            f"openai-compatible:{model}@{base}"
            + (f"#key_env={settings['key_env']}" if "key_env" in settings else "")
        )
    if "model" in settings:
        raise ConfigError(
            "`model` applies to addresses that end with /v1 or /chat/completions", where=where
        )
    from .http_agent import HttpAgent  # aiohttp takes 0.1 s to import, for these agents only

    return HttpAgent(
        url,
        request=_read_request_template(settings.get("request"), where),
        answer=settings.get("answer"),
        key_env=settings.get("key_env"),
    )


def _read_request_template(name: str | None, where: str) -> dict[str, Any] | None:
    """Read a request template: a JSON object, or the name of a file with one."""
    if name is None:
        return None
    try:
        text = name if name.lstrip().startswith("{") else Path(name).read_text("utf-8")
        template = json.loads(text)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the request template cannot be read: {error}",
            where=where,
            hint='`request` is a JSON object or its file, such as {"question": "{prompt}"}',
        ) from None
    if not isinstance(template, dict):
        raise ConfigError("the request template is not a JSON object", where=where)
    return template
