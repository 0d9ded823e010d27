"""The messages of the native environment protocol, shared by client and server.

    POST   /sessions            OpenRequest  -> OpenResponse
    POST   /sessions/{id}/step  StepRequest  -> StepResponse
    GET    /sessions/{id}                    -> State
    DELETE /sessions/{id}                    -> 204
    GET    /health                           -> Health

All but the first and the last carry the token of the session in the header `Assay-Session`. Errors
have an `ErrorResponse` as their body: status 4xx for mistakes of the caller, 429 when all sessions
are in use, 500 for faults of the environment.
"""

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, ValidationError
from pydantic_core import from_json

from assay.types import JsonModel, Message, ToolSpec

from ..environment import Step, check_items
from .episodes import Session, StoredStep

PROTOCOL = "assay-env/1"
SESSION_HEADER = "Assay-Session"
MAX_BODY_BYTES = 4 * 1024 * 1024
# Chosen by the server, but used in URLs and headers of the client: nothing to escape is allowed.
_SESSION_ID_PATTERN = r"^[A-Za-z0-9_-]{1,200}$"


class _WireModel(JsonModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Parse a message. Raises `ValueError`, also for NaN and infinities."""
        written = data.encode() if isinstance(data, str) else data
        # pydantic accepts both words as numbers. The second parse is strict, and rarely needed.
        if b"NaN" in written or b"Infinity" in written:
            from_json(written, allow_inf_nan=False)
        return cls.model_validate_json(data)


class OpenRequest(_WireModel):
    """A request for a session. The seed (including 0) precedes the first observation."""

    seed: StrictInt | None = None
    task: dict[str, Any] = Field(default_factory=dict)
    episode_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Requests with the same id return the same session until its first step."""


class ServerLimits(_WireModel):
    """The limits of the server."""

    capacity: StrictInt
    idle_s: FiniteFloat
    largest_body: StrictInt


class OpenResponse(_WireModel):
    """A new session, and its first observation."""

    session: str = Field(pattern=_SESSION_ID_PATTERN)
    token: str = Field(pattern=_SESSION_ID_PATTERN, repr=False)
    observation: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    limits: ServerLimits

    @classmethod
    def of(cls, session: Session, limits: ServerLimits) -> Self:
        return cls(
            session=session.id,
            token=session.token,
            observation=session.opening,
            tools=tuple(check_items(ToolSpec, session.environment.tools, "tools")),
            limits=limits,
        )


class StepRequest(_WireModel):
    """A request for a step: one message of the agent. The first step has the index 0."""

    action: Message
    step_index: StrictInt = Field(ge=0)


class StepResponse(_WireModel):
    """The result of a step."""

    step_index: StrictInt
    replies: tuple[Message, ...]
    reward: FiniteFloat | None = Field(strict=True)
    terminated: StrictBool
    truncated: StrictBool
    ended_by_agent: StrictBool
    info: dict[str, Any]
    reason: str | None
    observation: Any = None
    acted: StrictBool = True

    @classmethod
    def of(cls, stored: StoredStep) -> Self:
        step = stored.step
        return cls(
            step_index=stored.step_index,
            replies=step.replies,
            # The model is strict: an environment may return an int or a numpy number.
            reward=None if step.reward is None else float(step.reward),
            terminated=step.terminated,
            truncated=step.truncated,
            ended_by_agent=step.ended_by_agent,
            info=dict(step.info),
            reason=step.reason,
            observation=step.observation,
            acted=step.acted,
        )

    def step(self) -> Step:
        """Return the step for the turn loop."""
        return Step(
            replies=self.replies,
            reward=self.reward,
            terminated=self.terminated,
            truncated=self.truncated,
            ended_by_agent=self.ended_by_agent,
            info=self.info,
            reason=self.reason,
            observation=self.observation,
            acted=self.acted,
        )


class State(_WireModel):
    """The progress of a session."""

    session: str
    seed: StrictInt | None
    steps: StrictInt
    over: StrictBool
    fault: str | None
    """The fault of the environment, if any."""

    @classmethod
    def of(cls, session: Session) -> Self:
        return cls(
            session=session.id,
            seed=session.seed,
            steps=len(session.steps),
            over=session.over,
            fault=None if session.fault is None else str(session.fault),
        )


class Health(_WireModel):
    """The public status of a server."""

    status: Literal["ok"]
    protocol: str
    sessions: StrictInt
    capacity: StrictInt
    environment: str
    takes_task: StrictBool
    """Whether environments use the task of a session."""


class ErrorDetail(_WireModel):
    """The reason why a request was refused."""

    kind: str
    message: str
    hint: str | None = None


class ErrorResponse(_WireModel):
    """The body of every unsuccessful answer."""

    error: ErrorDetail


def list_problems(error: ValueError) -> list[str]:
    """Return the problems of an invalid message, without quoting its values."""
    if not isinstance(error, ValidationError):
        return [f"body: {error}"]
    return [
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
