"""Settings of an endpoint that all models in this process share."""

from assay.errors import ConfigError
from assay.types import Endpoint

from .in_process_decoder import Sampling
from .tool_text import STYLES, CallStyle

LOCAL_DEFAULT_MAX_TOKENS = 512
"""Used and recorded if the endpoint has no limit."""


def build_sampling(endpoint: Endpoint, *, stop_ids: tuple[int, ...] = ()) -> Sampling:
    """Build the sampling settings of an endpoint; unset ones leave the distribution as is."""
    temperature, top_p = endpoint.temperature, endpoint.top_p
    return Sampling(
        temperature=1.0 if temperature is None else temperature,
        top_p=1.0 if top_p is None else top_p,
        top_k=endpoint.extra_params.get("top_k") or 0,
        max_tokens=endpoint.max_tokens or LOCAL_DEFAULT_MAX_TOKENS,
        stop_ids=stop_ids,
    )


def refuse_unsupported_settings(endpoint: Endpoint, *, known: tuple[str, ...]) -> None:
    """Raise `ConfigError` for settings that a model in this process would ignore."""
    where = f"local:{endpoint.model}"
    if endpoint.api_base is not None:
        raise ConfigError("a local model has no address", where=where, hint="remove `api_base`")
    for name in ("thinking", "reasoning_effort"):
        if getattr(endpoint, name) is not None:
            raise ConfigError(
                f"`{name}` is supported by hosted models only",
                where=where,
                hint="pass extra_params={'chat_template_kwargs': {...}} to the chat template",
            )
    if unknown := sorted(endpoint.extra_params.keys() - set(known)):
        raise ConfigError(
            f"extra_params has {', '.join(map(repr, unknown))}, which this model does not support; "
            f"supported: {', '.join(known)}",
            where=where,
        )


def read_tool_format(endpoint: Endpoint) -> CallStyle | None:
    """Return the tool-call format of an endpoint. None: detect it from the chat template."""
    value = endpoint.extra_params.get("tool_format")
    if value is None or value in STYLES:
        return value
    raise ConfigError(
        f"extra_params: tool_format={value!r} is not one of {', '.join(map(repr, STYLES))}",
        where=f"local:{endpoint.model}",
    )


def build_unreadable_calls_error(template: str, *, where: str, hint: str) -> ConfigError:
    """Build the error for a template whose tool calls cannot be parsed."""
    if "tools" in template:
        problem = "its format of tool calls is unknown, so calls would be read as text"
    else:
        problem = "it does not render tools, so the model would not see any"
    return ConfigError(
        f"the environment offers tools, but the chat template does not support them: {problem}",
        where=where,
        hint=f"{hint}, or name the format: extra_params={{'tool_format': ...}}, one of "
        f"{', '.join(map(repr, STYLES))}",
    )


def read_count_setting(endpoint: Endpoint, name: str) -> int | None:
    """Return a positive integer of `extra_params`, or None if it is not set."""
    value = endpoint.extra_params.get(name)
    if value is None or (type(value) is int and value > 0):
        return value
    raise ConfigError(
        f"extra_params: {name}={value!r} is not a whole number of at least 1",
        where=f"local:{endpoint.model}",
    )
