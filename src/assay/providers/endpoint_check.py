"""Whether an endpoint answers, for people who set one up. Asks for its models: costs nothing."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.errors import AssayError
from assay.types import Endpoint

from .attempt_errors import AttemptError, ErrorKind
from .clock import REAL_TIME, Timing
from .connection import build_request_template, connect
from .http import HttpEndpoint
from .provider_table import find_provider

CheckVerdict = Literal["answers", "refused", "unauthorised", "unreachable", "misconfigured"]

_TIMEOUT_S = 10.0
_MAX_MODELS = 1000


@dataclass(frozen=True)
class EndpointCheck:
    """What came of asking an endpoint for its models."""

    verdict: CheckVerdict
    """`refused`: something answers there, but not as a model server does."""

    detail: str
    """For people."""

    latency_s: float | None = None
    models: tuple[str, ...] | None = None
    """The models that are offered. None: the server does not say."""

    has_model: bool | None = None
    """Whether the endpoint's own model is among them."""

    hint: str | None = None
    proxy: str | None = None
    """Host and port of the proxy that it was asked through; None: it was asked directly."""


async def check_endpoint(
    endpoint: Endpoint, *, timeout_s: float = _TIMEOUT_S, timing: Timing = REAL_TIME
) -> EndpointCheck:
    """Ask an endpoint once which models it has. Never raises for what the endpoint does."""
    try:
        await connect(endpoint).close()
        speaks = find_provider(endpoint.provider).speaks
        if speaks == "mock":
            return EndpointCheck("answers", "a mock, in this process", models=(endpoint.model,))
        if speaks == "local":
            return EndpointCheck(
                "answers", "a model in this process, not loaded yet", models=(endpoint.model,)
            )
        path = "/v1/models" if speaks == "anthropic" else "/models"
        target = build_request_template(endpoint, path, timeout_s=timeout_s)
        line = HttpEndpoint(target, timing)
    except AssayError as error:
        return EndpointCheck("misconfigured", error.message, hint=error.hint)
    started = timing.clock()
    try:
        answer = await line.get()
        found = _read_model_list(answer, endpoint.model, timing.clock() - started)
    except AttemptError as fault:
        found = _build_failed_check(fault, timing.clock() - started)
    finally:
        await line.close()
    return replace(found, proxy=None if target.proxy is None else target.proxy.host)


def _build_failed_check(fault: AttemptError, latency_s: float) -> EndpointCheck:
    if fault.kind is ErrorKind.DENIED:
        return EndpointCheck("unauthorised", fault.message, latency_s, hint=fault.hint)
    if fault.kind in (ErrorKind.UNREACHABLE, ErrorKind.TIMEOUT):
        hint = "is the server running, and is `api_base` its address?"
        return EndpointCheck("unreachable", fault.message, hint=hint)
    return EndpointCheck("refused", fault.message, latency_s, hint=fault.hint)


def _read_model_list(answer: Any, model: str, latency_s: float) -> EndpointCheck:
    listed = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(listed, list):
        detail = "the answer is JSON, but not a list of models"
        return EndpointCheck("refused", detail, latency_s, hint="does `api_base` end in /v1?")
    names = [entry.get("id") for entry in listed[:_MAX_MODELS] if isinstance(entry, dict)]
    models = tuple(name for name in names if isinstance(name, str))
    # A list that was cut short, here or by the server, does not prove that a model is missing.
    cut = len(listed) > _MAX_MODELS or bool(answer.get("has_more"))
    has_model = True if model in models else None if cut else False
    detail = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    detail += ", the first of more" if cut else ""
    hint = f"{model!r} is not among its models" if has_model is False else None
    return EndpointCheck("answers", detail, latency_s, models, has_model, hint)
