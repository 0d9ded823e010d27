"""The messages of assay's own environment protocol, as both sides read and write them.

    POST   /sessions            OpenRequest  -> Opened
    POST   /sessions/{id}/step  StepRequest  -> StepAnswer
    GET    /sessions/{id}                    -> State
    DELETE /sessions/{id}                    -> 204
    GET    /health                           -> Health

All but the first and the last carry the token of the session in the header `Assay-Session`. What
is refused is answered with `ErrorResponse`: status 4xx for the caller's mistakes, 429 when all sessions
are taken, 500 for faults of the environment.
"""

from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, FiniteFloat, StrictBool, StrictInt, ValidationError
from pydantic_core import from_json

from assay.types import JsonModel, Message, ToolSpec

from ..environment import Step
from .episodes import Session, StoredStep

PROTOCOL = "assay-env/1"
SESSION_HEADER = "Assay-Session"
MAX_BODY_BYTES = 4 * 1024 * 1024
_SESSION_ID_PATTERN = r"^[A-Za-z0-9_-]{1,200}$"
"""What a server chooses becomes part of an address and of a header: nothing else fits in there."""


class _WireModel(JsonModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def from_json(cls, data: str | bytes) -> Self:
        """Read it. Raises `ValueError`, also for NaN and infinities, which JSON does not have."""
        written = data.encode() if isinstance(data, str) else data
        if b"NaN" in written or b"Infinity" in written:
            from_json(written, allow_inf_nan=False)
        return cls.model_validate_json(data)


class OpenRequest(_WireModel):
    """Asks for a session. The seed is applied before anything is observed, 0 included."""

    seed: StrictInt | None = None
    task: dict[str, Any] = Field(default_factory=dict)
    episode_id: str | None = Field(default=None, min_length=1, max_length=200)
    """Asking again with the same one gives the same session, until its first step."""


class ServerLimits(_WireModel):
    """What the server bounds."""

    capacity: StrictInt
    idle_s: FiniteFloat
    largest_body: StrictInt


class OpenResponse(_WireModel):
    """A session, and what the agent is shown first."""

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
            tools=tuple(session.environment.tools),
            limits=limits,
        )


class StepRequest(_WireModel):
    """One message of the agent. The first step has the index 0."""

    action: Message
    step_index: StrictInt = Field(ge=0)


class StepResponse(_WireModel):
    """What a step came to."""

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
        """The step as the turn loop takes it."""
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
    """How far a session is."""

    session: str
    seed: StrictInt | None
    steps: StrictInt
    over: StrictBool
    fault: str | None
    """What broke the environment, if anything did."""

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
    """What a server says of itself to anybody."""

    status: Literal["ok"]
    protocol: str
    sessions: StrictInt
    capacity: StrictInt
    environment: str
    takes_task: StrictBool
    """Whether the task of a session makes a difference to its environment."""


class ErrorDetail(_WireModel):
    """Why a request was refused."""

    kind: str
    message: str
    hint: str | None = None


class ErrorResponse(_WireModel):
    """The body of every answer that is not a success."""

    error: ErrorDetail


def list_problems(error: ValueError) -> list[str]:
    """What is wrong with a message that could not be read, without quoting it."""
    if not isinstance(error, ValidationError):
        return [f"body: {error}"]
    return [
        f"{'.'.join(map(str, problem['loc'])) or 'body'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_input=False)
    ]
