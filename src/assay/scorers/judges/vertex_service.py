"""A client of Vertex's evaluation service on top of its SDK."""

import importlib
import logging
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from assay.errors import AccessDenied, ConfigError, EndpointError, MissingExtra
from assay.types import Redactor

_OAUTH_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
# Set while the SDK is imported: it would draw progress bars, and LiteLLM would fetch prices.
_QUIET_ENVIRONMENT = {"TQDM_DISABLE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}

# Prefixes of errors that the service reported for a metric. All others are failed calls.
_ANSWER_ERROR_PREFIXES = ("Error in metric result", "Metric results missing")

_DENIED_STATUSES = (401, 403)
_RETRYABLE_STATUSES = (408, 409, 429, 499, 500, 502, 503, 504)


@dataclass(frozen=True)
class RubricVerdict:
    """The verdict on one of the rubrics that the service generated for a session."""

    rubric: str
    met: bool | None
    reason: str


@dataclass(frozen=True)
class VertexAnswer:
    """The answer for one metric."""

    score: float | None = None
    explanation: str = ""
    verdicts: tuple[RubricVerdict, ...] = ()
    problem: str | None = None
    """Why the metric has no score."""


class VertexService:
    """A connection to the service of one project and location."""

    def __init__(self, project: str, location: str, *, address: str | None = None) -> None:
        for name, value in (("project", project), ("location", location)):
            if not re.fullmatch(r"[a-z0-9][a-z0-9.:-]*", value):
                raise ConfigError(f"{name}={value!r} is not a valid name", where="vertex_judge()")
        self.name = f"vertex:{location}"
        options = (
            {}
            if address is None
            else {"http_options": {"base_url": _check_vertex_address(address)}}
        )
        credentials = _load_credentials()
        # Kept for the life of the service: it redacts the token from every error message.
        self._redactor = Redactor([str(getattr(credentials, "token", None) or "")])
        with _silence_sdk():
            try:
                platform: Any = importlib.import_module("agentplatform")
                # Import now rather than during the first sample: it takes seconds.
                importlib.import_module("agentplatform._genai.evals")
            except ImportError as error:
                raise _build_missing_sdk_error() from error
            self._types = platform.types
            self._client = platform.Client(
                project=project, location=location, credentials=credentials, **options
            )

    def evaluate(self, row: Mapping[str, Any], specs: Sequence[str]) -> dict[str, VertexAnswer]:
        """Evaluate a row and return the answers by metric. Blocks.

        Raises `EndpointError` when the call for one of them failed.
        """
        dataset = self._types.EvaluationDataset(eval_cases=[build_eval_case(self._types, row)])
        metrics = [self._types.Metric(name=spec) for spec in specs]
        try:
            found = self._client.evals.evaluate(dataset=dataset, metrics=metrics)
        except Exception as error:
            # The SDK may raise anything. The sample is unscored, and a retry may help.
            raise EndpointError(f"the SDK failed: {error}", where=self.name) from error
        return {
            name: self._read_answer(result)
            for case in found.eval_case_results or ()
            for candidate in case.response_candidate_results or ()
            for name, result in (candidate.metric_results or {}).items()
        }

    def _read_answer(self, result: Any) -> VertexAnswer:
        problem = result.error_message
        if problem and not problem.startswith(_ANSWER_ERROR_PREFIXES):
            raise _build_vertex_error(problem, self.name)
        verdicts = []
        for verdict in result.rubric_verdicts or ():
            content = verdict.evaluated_rubric.content if verdict.evaluated_rubric else None
            described = content.property.description if content and content.property else None
            verdicts.append(
                RubricVerdict(described or "", verdict.verdict, verdict.reasoning or "")
            )
        return VertexAnswer(
            result.score, result.explanation or "", tuple(verdicts), problem or None
        )


def build_eval_case(types: Any, row: Mapping[str, Any]) -> Any:
    """Build the SDK's case of a row."""
    # Field by field: the SDK's loader drops fields silently.
    fields: dict[str, Any] = {
        "eval_case_id": row["session_id"],
        "prompt": row["prompt"],
        "responses": [{"response": row["response"]}],
        "conversation_history": [
            {"turn_id": str(place), "content": content}
            for place, content in enumerate(row["conversation_history"])
        ],
        "agent_data": row["agent_data"],
    }
    if row["intermediate_events"]:
        fields["intermediate_events"] = row["intermediate_events"]
    if row["reference"]:
        fields["reference"] = {"response": {"parts": [{"text": row["reference"]}]}}
    if row["instruction"]:
        fields["system_instruction"] = {"parts": [{"text": row["instruction"]}]}
    return types.EvalCase.model_validate(fields)


def _build_vertex_error(problem: str, where: str) -> EndpointError:
    # The SDK keeps only the text of an error, which begins with the HTTP status.
    coded = re.match(r"(\d{3}) ", problem)
    status = int(coded[1]) if coded else None
    shown = problem if len(problem) <= 500 else f"{problem[:500]}…"
    if status in _DENIED_STATUSES:
        # Without the status: a run takes a 403 of a model for the refusal of one input, but here it
        # concerns the project.
        return AccessDenied(
            shown,
            where=where,
            retryable=False,
            hint="check that these credentials may use Vertex AI in this project",
        )
    again = status is None or status in _RETRYABLE_STATUSES
    return EndpointError(shown, where=where, status=status, retryable=again)


@contextmanager
def _silence_sdk() -> Iterator[None]:
    """Import the SDK without its warnings, progress bars and log lines."""
    for name in ("agentplatform", "google_genai"):
        # Handlers of the application still get the records; this only replaces the fallback that
        # prints to stderr.
        logging.getLogger(name).addHandler(logging.NullHandler())
    before = {name: os.environ.get(name) for name in _QUIET_ENVIRONMENT}
    os.environ.update(_QUIET_ENVIRONMENT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def _build_missing_sdk_error() -> MissingExtra:
    package = "google-cloud-aiplatform"
    return MissingExtra.build("vertex", by="judging with Vertex", package=package)


def _load_credentials() -> Any:
    """Load the default credentials and refresh them, so that invalid ones fail before a run."""
    try:
        auth: Any = importlib.import_module("google.auth")
        errors: Any = importlib.import_module("google.auth.exceptions")
        requests: Any = importlib.import_module("google.auth.transport.requests")
    except ImportError as error:
        raise _build_missing_sdk_error() from error
    try:
        found, _ = auth.default(scopes=[_OAUTH_SCOPE])
    except errors.DefaultCredentialsError as error:
        raise ConfigError(
            f"no Google Cloud credentials were found: {error}",
            where="vertex_judge()",
            hint="run `gcloud auth application-default login`, or set "
            "GOOGLE_APPLICATION_CREDENTIALS to a credentials file",
        ) from None
    try:
        found.refresh(requests.Request())
    except errors.RefreshError as error:
        raise AccessDenied(f"the credentials are refused: {error}", where="vertex") from None
    except errors.GoogleAuthError as error:
        raise EndpointError(f"no access token was issued: {error}", where="vertex") from None
    return found


def _check_vertex_address(address: str) -> str:
    # An access token is sent to the address: plain HTTP is allowed on this machine only.
    parts = urlsplit(address)
    local = parts.hostname in ("127.0.0.1", "localhost", "::1")
    if parts.scheme == "https" or (parts.scheme == "http" and local):
        return address
    raise ConfigError(
        f"{address!r} is not an https:// address",
        where="vertex_judge()",
        hint="an access token is sent to this address; use https://",
    )
