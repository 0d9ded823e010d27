"""Subagents inside a sample: recorded as samples, or as branches of its trajectory."""

from assay.scorers.subagents import find_subagents
from assay.types import Branch, Message, ModelCall, Sample, Trajectory


def test_subagents_recorded_by_a_gateway_are_found() -> None:
    said = [Message(role="user", content="look"), Message(role="assistant", content="found")]
    trajectory = Trajectory(
        messages=[Message(role="assistant", content="done")],
        calls=[
            ModelCall(model="a"),
            ModelCall(model="b", branch=1),
            ModelCall(model="c", branch=2),
        ],
        branches=[
            Branch(),
            Branch(reason="subagent", parent=0, name="explorer", messages=said),
            Branch(reason="edited_history", parent=0),
        ],
    )

    (child,) = find_subagents(Sample(id="s", trajectory=trajectory))

    assert isinstance(child, Sample)
    assert child.id == "explorer"
    assert child.response == "found"
    assert child.trajectory is not None
    assert [call.model for call in child.trajectory.calls] == ["b"]
