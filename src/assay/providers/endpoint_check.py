"""Check an endpoint by listing its models, which is free of charge."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.errors import AssayError

from .attempt_errors import AttemptError, ErrorKind
from .clock import REAL_TIME, Timing
from .connection import build_request_template, connect
from .http import HttpEndpoint
from .model_strings import EndpointLike, to_endpoint
from .provider_table import find_provider

CheckVerdict = Literal["answers", "refused", "unauthorised", "unreachable", "misconfigured"]

_TIMEOUT_S = 10.0
_MAX_MODELS = 1000


@dataclass(frozen=True)
class EndpointCheck:
    """The result of listing the models of an endpoint."""

    verdict: CheckVerdict
    """`refused`: a server answers, but not as a model server does."""

    detail: str
    """A description for humans."""

    latency_s: float | None = None
    models: tuple[str, ...] | None = None
    """The offered models. None: unknown."""

    has_model: bool | None = None
    """Whether the model of the endpoint is among them."""

    hint: str | None = None
    proxy: str | None = None
    """Host and port of the proxy; None: a direct connection."""


async def check_endpoint(
    endpoint: EndpointLike, *, timeout_s: float = _TIMEOUT_S, timing: Timing = REAL_TIME
) -> EndpointCheck:
    """List the models of an endpoint. Errors of the endpoint are returned, not raised."""
    try:
        endpoint = to_endpoint(endpoint, where="check_endpoint()")
        await connect(endpoint).close()
        protocol = find_provider(endpoint.provider).protocol
        if protocol == "mock":
            return EndpointCheck("answers", "a mock, in this process", models=(endpoint.model,))
        if protocol == "local":
            return EndpointCheck(
                "answers", "a model in this process, not loaded yet", models=(endpoint.model,)
            )
        path = "/v1/models" if protocol == "anthropic" else "/models"
        template = build_request_template(endpoint, path, timeout_s=timeout_s)
        http = HttpEndpoint(template, timing)
    except AssayError as error:
        return EndpointCheck("misconfigured", error.message, hint=error.hint)
    started = timing.clock()
    try:
        answer = await http.get()
        found = _read_model_list(answer, endpoint.model, timing.clock() - started)
    except AttemptError as fault:
        spent_s = timing.clock() - started
        if fault.kind is ErrorKind.DENIED:
            found = EndpointCheck("unauthorised", fault.message, spent_s, hint=fault.hint)
        elif fault.kind in (ErrorKind.UNREACHABLE, ErrorKind.TIMEOUT):
            hint = "check that the server is running and that `api_base` is its address"
            found = EndpointCheck("unreachable", fault.message, hint=hint)
        else:
            found = EndpointCheck("refused", fault.message, spent_s, hint=fault.hint)
    finally:
        await http.close()
    return replace(found, proxy=None if template.proxy is None else template.proxy.host)


def _read_model_list(answer: Any, model: str, latency_s: float) -> EndpointCheck:
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        detail = "the answer is JSON, but not a list of models"
        return EndpointCheck("refused", detail, latency_s, hint="check that `api_base` ends in /v1")
    names = [entry.get("id") for entry in listed[:_MAX_MODELS] if isinstance(entry, dict)]
    models = tuple(name for name in names if isinstance(name, str))
    # A truncated list does not prove that a model is missing.
    cut = len(listed) > _MAX_MODELS or bool(answer.get("has_more"))
    has_model = True if model in models else None if cut else False
    detail = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    detail += ", the list is truncated" if cut else ""
    hint = f"the server does not offer the model {model!r}" if has_model is False else None
    return EndpointCheck("answers", detail, latency_s, models, has_model, hint)
