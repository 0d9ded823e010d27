"""The sampling settings of an endpoint, for a training."""

from typing import TYPE_CHECKING, Any

from assay.types import Endpoint

if TYPE_CHECKING:
    from .grpo_config import GRPOConfig

_ENDPOINT_FIELDS = ("temperature", "top_p", "max_tokens", "stop")
_EXTRA_PARAMS = ("top_k", "stop_token_ids", "chat_template_kwargs", "tool_format")
# Parameters without effect on the distribution; a training sets its own.
_ENGINE_PARAMS = frozenset({"device", "dtype", "threads", "logprobs", "return_token_ids"})


def read_rollout_settings(endpoint: Endpoint) -> dict[str, Any]:
    """Return the settings of prompt and sampling. Raises `ValueError` for unsupported ones."""
    for name in ("thinking", "reasoning_effort"):
        if getattr(endpoint, name) is not None:
            raise ValueError(
                f"`endpoint` has `{name}`, which belongs to hosted models: "
                "extra_params={'chat_template_kwargs': {...}} reaches the chat template"
            )
    if unknown := sorted(endpoint.extra_params.keys() - {*_EXTRA_PARAMS, *_ENGINE_PARAMS}):
        raise ValueError(
            f"`endpoint` has extra_params that a model in training does not support: "
            f"{', '.join(unknown)}; {', '.join(_EXTRA_PARAMS)} are supported"
        )
    shared = {name: getattr(endpoint, name) for name in _ENDPOINT_FIELDS}
    extra = {name: endpoint.extra_params.get(name) for name in _EXTRA_PARAMS}
    return {name: value for name, value in {**shared, **extra}.items() if value is not None}


def build_policy_endpoint(config: "GRPOConfig") -> Endpoint:
    """Return the endpoint of the model in training."""
    extra = {name: getattr(config, name) for name in _EXTRA_PARAMS}
    return Endpoint(
        provider="local",
        model=config.model_name,
        temperature=config.temperature,
        top_p=config.top_p,
        max_tokens=config.max_tokens,
        stop=config.stop or None,
        extra_params={name: value for name, value in extra.items() if value},
    )
