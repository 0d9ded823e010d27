"""The cost of a sample's model calls."""

from assay.types import Sample, Trajectory

# The termination reason of a rollout that its agent ended.
_AGENT_ENDED = "agent"


def compute_sample_cost(sample: Sample) -> float | None:
    """Return the cost of the model calls of a sample; None when one of them is unknown."""
    return 0.0 if sample.trajectory is None else compute_trajectory_cost(sample.trajectory)


def compute_trajectory_cost(trajectory: Trajectory) -> float | None:
    """Return the cost of a rollout; None when that of a model call is unknown."""
    if trajectory.cost_usd is not None:
        return trajectory.cost_usd
    if not trajectory.calls and trajectory.termination_reason == _AGENT_ENDED:
        return None  # an agent that reports no calls may have made some
    total = 0.0
    for call in trajectory.calls:
        if call.usage is None or call.usage.cost_usd is None:
            return None
        total += call.usage.cost_usd
    return total
