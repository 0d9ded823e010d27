"""Tokens from text, for conversations without the sampled tokens. For SFT only.

Every answer is treated as a model call: the template renders the messages before it as the prompt,
and the answer as the completion. These calls become samples as recorded ones do.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pydantic import ValidationError

from assay.errors import TokenError
from assay.formats import find_failed_turns
from assay.types import Message, ModelCall, Sample, ToolCall, ToolSpec, Trajectory

from .chat_template import ChatTemplate, ChatTokenizer
from .token_spans import FORKS, TokenTurn, assemble_samples

DemonstratedTurns = Literal["all", "last"]


def to_demonstration(sample: Sample, *, turns: DemonstratedTurns = "all") -> Sample:
    """Return the sample with its conversation as a trajectory, unless it has one already.

    A row with `completion` demonstrates that after its prompt. Other conversations demonstrate
    the assistant's turns: all of them, or the last one. Raises `TokenError` without any.
    """
    if sample.trajectory is not None:
        return sample
    prompt = messages = sample.messages
    completion = sample.input.get("completion")
    if isinstance(completion, str):
        messages = [*prompt, Message(role="assistant", content=completion)]
    elif completion is not None:
        try:
            messages = [*prompt, *map(Message.model_validate, completion)]
        except (TypeError, ValidationError) as error:
            problem = str(error).splitlines()[0]
            raise TokenError(
                f"`completion` is neither text nor a list of messages: {problem}",
                where=f"sample {sample.id}",
            ) from None
    else:
        answers = [place for place, message in enumerate(messages) if message.role == "assistant"]
        if not answers or answers[-1] != len(messages) - 1:
            raise TokenError(
                "the conversation does not end with an answer, so it has nothing to learn from",
                where=f"sample {sample.id}",
                hint="provide messages that end with the assistant's, a `completion` or a "
                "trajectory",
            )
        prompt = messages[: answers[0 if turns == "all" else -1]]
    trajectory = Trajectory(messages=list(messages))
    return sample.model_copy(update={"prompt": prompt, "trajectory": trajectory})


def retokenize_sample(
    sample: Sample, tokenizer: ChatTokenizer, *, tools: Sequence[ToolSpec] = ()
) -> list[Sample]:
    """Return samples with `tokens` and `loss_mask` from text, marked `retokenized`.

    The mask is 1.0 on the answers after the sample's prompt and on the token that ends each;
    answers within the prompt are context. Returns several samples where the template rewrites
    earlier turns. Raises `TokenError` where the chat template does not locate the answer for
    certain.
    """
    return Retokenizer(tokenizer).samples(sample, tools=tools)


class Retokenizer:
    """`retokenize_sample` for many samples: the chat template is verified once."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        # Each verified kind of turn, and the token that ends it.
        self._stop_ids: dict[str, int] = {}

        self._checked: set[str] = set()
        # Raises for a tokenizer without a chat template, before any sample is read.
        ChatTemplate(tokenizer)

    def samples(self, sample: Sample, *, tools: Sequence[ToolSpec] = ()) -> list[Sample]:
        """Return the retokenized samples of one sample."""
        places = find_answer_places(sample)
        trajectory = sample.trajectory or Trajectory()
        calls: dict[int | None, ModelCall] = {call.message_index: call for call in trajectory.calls}
        template = ChatTemplate(self._tokenizer, tools)
        made: list[TokenTurn] = []
        try:
            # A template that omits system messages or tool results would train on wrong prompts.
            roles = {
                _CONTEXT_ROLES[message.role]
                for message in trajectory.messages
                if message.role in _CONTEXT_ROLES
            }
            if any(message.tool_calls for message in trajectory.messages):
                roles.add("tool")
            for role in roles - self._checked:
                template.check_writes(*_CONTEXT_PROBES[role])
                self._checked.add(role)
            for place in places:
                kind = "reasoning" if trajectory.messages[place].reasoning else "plain"
                if kind not in self._stop_ids:
                    self._stop_ids[kind] = _find_end_token(template, kind)
                turn = template.turn(trajectory.messages, place, stop_id=self._stop_ids[kind])
                made.append(replace(turn, call=calls.get(place)))
        except TokenError as error:
            place = places[len(made)]
            where = f"sample {sample.id}, message {place}: {error.where or 'the text'}"
            raise TokenError(error.message, where=where, hint=error.hint) from error
        return assemble_samples(sample, made, source="retokenized")


def find_answer_places(sample: Sample) -> list[int]:
    """Return the positions of the answers to the sample's prompt in the trajectory.

    These are the messages of the recorded calls, else the assistant's turns after the prompt. A
    message with `weight` 0, as in OpenAI's files, is context.
    """
    where = f"sample {sample.id}"
    if sample.trajectory is None:
        raise TokenError(
            "the sample has no trajectory, so it has no answers after its prompt",
            where=where,
            hint=_DEMONSTRATE_HINT,
        )
    if sample.metadata.get(FORKS, 1) != 1:
        raise TokenError("the sample is one of several that were cut from one rollout", where=where)
    messages = sample.trajectory.messages
    turns = (call for call in sample.trajectory.calls if call.purpose == "turn")
    calls = [call for call in turns if call.error is None]
    given = {call.message_index for call in calls if call.message_index is not None}
    # Only if every call has its message: otherwise some answers would be missed.
    if not calls or len(given) != len(calls):
        given = {*range(_count_prompt_messages(sample, messages), len(messages))}
        given -= find_failed_turns(sample.trajectory)
    places = [
        place
        for place, message in enumerate(messages)
        if place in given
        and message.role == "assistant"
        and (message.__pydantic_extra__ or {}).get("weight") != 0
    ]
    if not places:
        raise TokenError(
            "the sample has no answer after its prompt", where=where, hint=_DEMONSTRATE_HINT
        )
    return places


_DEMONSTRATE_HINT = "`sft_train` takes conversations without a rollout as demonstrations"


def _count_prompt_messages(sample: Sample, messages: Sequence[Message]) -> int:
    if isinstance(sample.prompt, str):
        return 0
    prompt = sample.prompt
    if len(messages) >= len(prompt) and all(
        (one.role, one.text, one.tool_calls) == (two.role, two.text, two.tool_calls)
        for one, two in zip(messages, prompt, strict=False)
    ):
        return len(prompt)
    if any(message.role == "assistant" for message in prompt):
        raise TokenError(
            "the trajectory does not begin with the prompt, which contains answers: the answers "
            "to learn from are ambiguous",
            where=f"sample {sample.id}",
            hint="set `message_index` on the trajectory's calls",
        )
    return 0


# Conversations that probe a template: no template contains their words by itself.
_TALK = (
    Message(role="user", content="Which city is meant?"),
    Message(role="assistant", content="Ghent"),
    Message(role="user", content="And the other one?"),
    Message(role="assistant", content="Oslo, I think"),
)
_THOUGHT = tuple(
    message.model_copy(update={"reasoning": f"Two cities, {place} is left"})
    if message.role == "assistant"
    else message
    for place, message in enumerate(_TALK)
)
_ANSWER_PROBES = {"plain": _TALK, "reasoning": _THOUGHT}
_CALL = ToolCall(id="callabcde", name="look_up", arguments={"city": "Ghent"})
_TOOL_TALK = (
    Message(role="user", content="Is it raining?"),
    Message(role="assistant", content="", tool_calls=(_CALL,)),
    Message(role="tool", content="drizzle", tool_call_id="callabcde", name="look_up"),
)
_CONTEXT_ROLES = {"system": "system", "developer": "system", "tool": "tool", "function": "tool"}
# Words that a template must write, by the role of the messages in a sample.
_CONTEXT_PROBES = {
    "system": ((Message(role="system", content="Be brief"), *_TALK), ("Be brief",)),
    "tool": (_TOOL_TALK, ("look_up", "city", "Ghent", "drizzle")),
}


def _find_end_token(template: ChatTemplate, kind: str) -> int:
    # The first and the last answer: some templates end only the last one differently.
    ends = {template.turn(_ANSWER_PROBES[kind], place).completion[-1] for place in (1, 3)}
    if len(ends) > 1:
        raise TokenError(
            f"the template ends two answers of one talk with different tokens: {sorted(ends)}",
            where="the chat template",
        )
    return ends.pop()
