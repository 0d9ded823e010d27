"""`rollout_fn` as an agent: it takes the client of the run, and sees the whole sample."""

from typing import TYPE_CHECKING

from assay.agents import RunContext, name_function
from assay.errors import EnvironmentFault
from assay.types import Boundary, Sample, Trajectory

if TYPE_CHECKING:
    from .eval_config import SampleRollout


class RolloutFunctionAgent:
    """Calls `rollout_fn` in the event loop of the run."""

    boundary = Boundary.ENVIRONMENT
    """Its failures are the environment's, which the function contains."""

    def __init__(self, function: "SampleRollout") -> None:
        self.name = self.identity = name_function(function)
        self._function = function

    async def run(self, sample: Sample, context: RunContext) -> Trajectory:
        """Return the trajectory of the function."""
        try:
            returned: object = await self._function(context.client, sample)
        except SystemExit as error:
            raise EnvironmentFault(f"`rollout_fn` called sys.exit({error.code!r})") from error
        if not isinstance(returned, Trajectory):
            kind = type(returned).__name__
            raise EnvironmentFault(f"`rollout_fn` returned a {kind}, not a Trajectory")
        return returned
