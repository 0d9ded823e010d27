"""The answer of an agent, whatever its form, as a trajectory."""

from collections import Counter
from collections.abc import Sequence

from assay.errors import WireError
from assay.types import (
    Message,
    ModelCall,
    Trajectory,
    Usage,
    construct_unchecked,
    replace_lone_surrogates,
)

from .agent import AgentFault, RunContext


def build_trajectory(value: object, context: RunContext, seconds: float) -> Trajectory:
    """Convert the return value of an agent. Raises `AgentFault` if it is not an answer.

    The prompt is always in the trajectory: an agent cannot replace its question with another one.
    """
    if isinstance(value, Trajectory):
        return _complete_trajectory(value, context, seconds)
    prompt = context.messages
    recorded = None if context.client is None else context.client.trajectory("agent")
    if recorded is not None and value == recorded.messages[-1].text:
        # The answer is the model's own: keep the conversation that led to it, with its calls.
        return _complete_trajectory(recorded, context, seconds)
    if isinstance(value, str):
        # The common case: no conversion, no validation.
        # Text that was cut inside an emoji has half a character.
        text = value if value.isascii() else replace_lone_surrogates(value)
        answer = [construct_unchecked(Message, {"role": "assistant", "content": text})]
        usage, more = None, {}
    else:
        # Reads a dozen formats, which an agent that returns text does not need.
        from assay.formats import convert_agent_output

        try:
            output = convert_agent_output(value)
        except WireError as error:
            raise AgentFault(error.message, hint=error.hint) from error
        answer, usage = output.messages, output.usage
        # Parts and fields that a message cannot represent, with their counts.
        dropped = Counter(each.what for each in output.dropped)
        more = {"dropped": dict(dropped)} if dropped else {}
    fields = {
        "messages": _add_prompt(answer, prompt),
        "calls": _list_calls(context, usage, seconds),
        "duration": seconds,
        "termination_reason": "agent",
    }
    return Trajectory(**fields, **more) if more else construct_unchecked(Trajectory, fields)


def _list_calls(context: RunContext, usage: Usage | None, seconds: float) -> list[ModelCall]:
    """Return the recorded calls of the agent, else one with the usage that it reports."""
    if context.client is not None and context.client.calls:
        return context.client.calls
    return [] if usage is None else [ModelCall(usage=usage, latency_s=seconds)]


def _complete_trajectory(trajectory: Trajectory, context: RunContext, seconds: float) -> Trajectory:
    if not trajectory.messages:
        raise AgentFault("the agent returned a trajectory without messages")
    more: dict[str, object] = {}
    is_wire = any(call.wire is not None for call in trajectory.calls)
    messages = _add_prompt(trajectory.messages, context.messages, within=is_wire)
    if messages is not trajectory.messages:
        more["messages"] = messages
    if trajectory.duration is None:
        more["duration"] = seconds
    if not trajectory.calls and (calls := _list_calls(context, None, seconds)):
        more["calls"] = calls
    return trajectory.model_copy(update=more) if more else trajectory


def _add_prompt(
    messages: list[Message], prompt: Sequence[Message], *, within: bool = False
) -> list[Message]:
    """Put the prompt first, unless the messages contain it.

    Agents may return the whole conversation, with messages of their own before the question, or
    only the part after it. `within`: agents add instructions to the question before they send it.
    """
    left = list(reversed(prompt))
    for message in messages:
        if not left:
            break
        same = left[-1].text in message.text if within else message.text == left[-1].text
        if message.role == left[-1].role and same:
            left.pop()
    return [*prompt, *messages] if left else messages
