"""Builders: samples in one line, so that a test shows only what it is about."""

from typing import Any

from assay.types import (
    EvaluateResult,
    Message,
    Sample,
    StepOutput,
    ToolCall,
    Trajectory,
)


def asked(text: str) -> Message:
    return Message(role="user", content=text)


def said(text: str | None, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=text, tool_calls=calls)


def called(name: str, call_id: str = "call_1", **arguments: Any) -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def answered(text: str, call_id: str = "call_1") -> Message:
    return Message(role="tool", content=text, tool_call_id=call_id)


def sample(*messages: Message, **fields: Any) -> Sample:
    """A sample whose conversation has happened."""
    first = [message for message in messages[:1] if message.role == "user"]
    return Sample(prompt=first, trajectory=Trajectory(messages=list(messages)), **fields)


def steps(*rewards: float) -> EvaluateResult:
    """A result with one step for each reward; the last one ends the episode."""
    return EvaluateResult(
        score=sum(rewards),
        step_outputs=[
            StepOutput(step_index=index, base_reward=reward, terminated=index == len(rewards) - 1)
            for index, reward in enumerate(rewards)
        ],
    )
