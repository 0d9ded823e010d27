"""The result that an environment gives to a rollout: rewards, steps, and how it ended."""

from typing import Any

from assay.types import EvaluateResult, Sample, Trajectory


def read_environment_result(sample: Sample) -> EvaluateResult:
    """Return the environment's own result, for a run without a scorer."""
    own = sample.trajectory.evaluation_result if sample.trajectory is not None else None
    none = EvaluateResult(reason="the environment gave no reward")
    return own or add_environment_steps(none, sample.trajectory)


def add_environment_steps(result: EvaluateResult, trajectory: Trajectory | None) -> EvaluateResult:
    """Add the environment's steps to a result, unless the scorer set them."""
    if trajectory is None or (trajectory.session is None and trajectory.evaluation_result is None):
        return result
    own = trajectory.evaluation_result
    more: dict[str, Any] = {}
    if own is not None and result.step_outputs is None:
        more["step_outputs"] = own.step_outputs
        more["final_control_plane_info"] = own.final_control_plane_info
    if result.trajectory_info is None:
        # The fallback is for environments without rewards, which have no result of their own.
        more["trajectory_info"] = {
            "duration": trajectory.duration,
            "steps": trajectory.steps,
            "termination_reason": trajectory.termination_reason,
        }
        if own is not None and own.trajectory_info is not None:
            more["trajectory_info"] = own.trajectory_info
    return result.model_copy(update=more)
