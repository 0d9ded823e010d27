"""A stored conversation that can be continued."""

from typing import Annotated, Any, Self

from pydantic import AliasChoices, ConfigDict, Field, field_validator

from .endpoint import Endpoint
from .field_types import NullToEmpty
from .message import Message
from .sample import Status
from .serialization import JsonModel


class AgentSession(JsonModel):
    """One conversation with a model, its settings and its position in a tree of branches.

    Written without secrets. `with_secrets` restores them before the session is continued.
    """

    # `defer_build`: most evaluations neither continue nor store a session.
    model_config = ConfigDict(defer_build=True)

    id: str = Field(min_length=1, validation_alias=AliasChoices("id", "session_id"))
    endpoint: Endpoint
    messages: list[Message] = Field(default_factory=list)
    environment: dict[str, Any] | None = None
    """Which environment the session runs in, and its configuration."""

    environment_state: dict[str, Any] | None = None
    parent_id: str | None = None
    branch_point: int | None = Field(default=None, ge=0)
    """How many messages of the parent this session begins with."""

    status: Status = Status.PENDING
    tags: Annotated[dict[str, str], NullToEmpty] = Field(default_factory=dict)
    created_at: str | None = None
    updated_at: str | None = None
    metadata: Annotated[dict[str, Any], NullToEmpty] = Field(default_factory=dict)

    @field_validator("endpoint", mode="before")
    @classmethod
    def _ignore_stored_secrets(cls, value: Any) -> Any:
        # `from_dict` ignores secrets, which files of other tools may contain.
        return Endpoint.from_dict(value) if isinstance(value, dict) else value

    @property
    def session_id(self) -> str:
        return self.id

    def with_secrets(self, *, api_key: str = "", oauth_token: str = "") -> Self:
        """Return the session with an endpoint that can be called."""
        endpoint = Endpoint.from_dict(
            self.endpoint.to_dict(exclude_secrets=False), api_key, oauth_token
        )
        return self.model_copy(update={"endpoint": endpoint})
