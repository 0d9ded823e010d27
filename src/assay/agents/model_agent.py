"""An agent that is a model in an environment: the turn loop."""

from collections.abc import Callable, Coroutine, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Self

from assay.environments import BasicEnvironment, Environment, Step, Toolbox
from assay.providers import (
    ClientSettings,
    ModelClient,
    connect,
    format_endpoint_name,
    to_endpoint,
)
from assay.types import (
    Boundary,
    Endpoint,
    Message,
    Sample,
    ToolSpec,
    Trajectory,
    stable_id,
    thaw,
)

from .agent import PreparationFailed, RunContext
from .identity import identify
from .turn_loop import run_agent

if TYPE_CHECKING:
    # The readers of manifests take long to import, and most model agents have none.
    from assay.types import AgentDefinition, InlineTool


class ModelAgent:
    """Calls a model, with a system prompt and an environment if given, until the episode ends."""

    def __init__(
        self,
        endpoint: Endpoint | str,
        *,
        environment: Callable[[Sample], Environment] | None = None,
        system: str | None = None,
        client: ModelClient | None = None,
        settings: ClientSettings | None = None,
    ) -> None:
        self.endpoint = to_endpoint(endpoint, where="ModelAgent")
        self.name = format_endpoint_name(self.endpoint)
        self.client: ModelClient | None = client
        self._settings = settings
        self._environment = environment
        self._system = None if system is None else Message(role="system", content=system)

    @property
    def identity(self) -> str:
        system = None if self._system is None else self._system.text
        code = None if self._environment is None else identify(self._environment)
        return stable_id([self.endpoint.to_dict(), self.endpoint.extra_params, system, code])

    @property
    def sha256(self) -> str | None:
        """The digest of the code of its tools, where known."""
        return getattr(self._environment, "sha256", None)

    def run(self, sample: Sample, context: RunContext) -> Coroutine[Any, Any, Trajectory]:
        """Run the model in a new environment until the episode ends or a limit is reached."""
        try:
            environment = (
                BasicEnvironment() if self._environment is None else self._environment(sample)
            )
        except (Exception, SystemExit) as error:
            raise PreparationFailed(Boundary.ENVIRONMENT) from error
        messages = context.messages
        if self.client is None:
            self.client = connect(self.endpoint, self._settings)
        return run_agent(
            self.client,
            environment,
            messages if self._system is None else [self._system, *messages],
            limits=context.limits,
            seed=context.seed,
            sampling_seed=context.sampling_seed,
        )

    def with_client(self, client: ModelClient) -> Self:
        """Return the same agent with another client."""
        other = copy(self)
        other.client = client
        return other

    async def close(self) -> None:
        """Close the connections."""
        if self.client is not None:
            client, self.client = self.client, None
            await client.close()


def build_system_prompt(definition: "AgentDefinition") -> str:
    """Build the system prompt from role, goal and backstory of a manifest."""
    parts = [
        f"You are {definition.name}. Your role: {definition.role}",
        f"Your goal: {definition.goal}",
    ]
    if definition.backstory:
        parts.append(definition.backstory)
    return "\n\n".join(parts)


class ToolCode:
    """The tools that a manifest describes, and the functions that implement them."""

    def __init__(
        self,
        tools: "Sequence[InlineTool]",
        functions: Sequence[Callable[..., Any]],
        sha256: str | None,
    ) -> None:
        self.sha256 = sha256
        self.identity = sha256 or stable_id([identify(each) for each in functions])
        self._toolbox = Toolbox(functions)
        self._specs = tuple(
            ToolSpec(
                name=tool.name,
                description=tool.description,
                parameters=thaw(tool.parameters),
            )
            for tool in tools
        )

    def __call__(self, sample: Sample) -> Environment:
        """Make a fresh environment for one sample."""
        return _ToolCallEnvironment(self._specs, self._toolbox)


class _ToolCallEnvironment(BasicEnvironment):
    """Answers calls of tools; an answer without a call ends the episode."""

    def __init__(self, specs: Sequence[ToolSpec], toolbox: Toolbox) -> None:
        self.tools = specs
        self._toolbox = toolbox

    async def step(self, action: Message) -> Step:
        if not action.tool_calls:
            return Step(terminated=True, ended_by_agent=True)
        return Step(replies=await self._toolbox.answer(action.tool_calls))
