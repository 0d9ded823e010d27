"""Tokens of text, for models that do not tell which tokens they sampled. Fit for SFT only.

Every answer is taken as the call it was: the template writes what came before it as the prompt,
and the answer after it. The same appending as for recorded calls makes samples of them.
"""

from collections.abc import Sequence

from assay.errors import TokenError
from assay.types import Message, ModelCall, Sample, ToolCall, ToolSpec, Trajectory

from .chat_template import ChatTemplate, ChatTokenizer
from .token_spans import FORKS, TokenTurn, assemble_samples


def retokenize_sample(
    sample: Sample, tokenizer: ChatTokenizer, *, tools: Sequence[ToolSpec] = ()
) -> list[Sample]:
    """Samples with `tokens` and `loss_mask` of the text of a trajectory, marked `retokenized`.

    The mask is 1.0 on the answers given after the sample's prompt and on the token that ends
    each; answers that stand in the prompt are context. Several samples come back where the
    template rewrites earlier turns. Raises `TokenError` where the tokenizer's chat template
    cannot be proven to say which tokens are the answer.
    """
    return Retokenizer(tokenizer).samples(sample, tools=tools)


class Retokenizer:
    """`retokenize_sample` for many samples: what was proven of the template is proven once."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._stop_ids: dict[str, int] = {}
        """Each kind of turn that was proven, and the token that ends it."""

        self._checked: set[str] = set()
        ChatTemplate(tokenizer)

    def samples(self, sample: Sample, *, tools: Sequence[ToolSpec] = ()) -> list[Sample]:
        """What `retokenize_sample` returns."""
        places = find_answer_places(sample)
        trajectory = sample.trajectory or Trajectory()
        template = ChatTemplate(self._tokenizer, tools)
        made: list[TokenTurn] = []
        try:
            self._check_context(trajectory.messages, template)
            for place in places:
                made.append(self._render_turn(template, trajectory.messages, place))
        except TokenError as error:
            place = places[len(made)]
            where = f"sample {sample.id}, message {place}: {error.where or 'the text'}"
            raise TokenError(error.message, where=where, hint=error.hint) from error
        return assemble_samples(
            sample, _attach_calls(made, places, trajectory), source="retokenized"
        )

    def _render_turn(
        self, template: ChatTemplate, messages: Sequence[Message], place: int
    ) -> TokenTurn:
        kind = "reasoning" if messages[place].reasoning else "plain"
        if kind not in self._stop_ids:
            self._stop_ids[kind] = _find_end_token(template, *_ANSWER_PROBES[kind])
        return template.turn(messages, place, stop_id=self._stop_ids[kind])

    def _check_context(self, messages: Sequence[Message], template: ChatTemplate) -> None:
        """Raise when the template leaves out what the answers are answers to."""
        found = {
            _CONTEXT_ROLES[message.role] for message in messages if message.role in _CONTEXT_ROLES
        }
        if any(message.tool_calls for message in messages):
            found.add("tool")
        for role in found - self._checked:
            talk, words = _CONTEXT_PROBES[role]
            template.check_writes(talk, words)
            self._checked.add(role)


def find_answer_places(sample: Sample) -> list[int]:
    """Where in the trajectory the answers stand that were given to the sample's prompt.

    Where calls say which message they gave, these; else the assistant's turns after the prompt.
    A message with `weight` 0, as OpenAI's files have it, is context.
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
    given = _find_call_messages(sample.trajectory)
    if given is None:
        given = set(range(_count_prompt_messages(sample, messages), len(messages)))
    places = [
        place
        for place, message in enumerate(messages)
        if place in given and message.role == "assistant" and _read_message_weight(message) != 0
    ]
    if not places:
        raise TokenError(
            "the sample has no answer after its prompt", where=where, hint=_DEMONSTRATE_HINT
        )
    return places


_DEMONSTRATE_HINT = "`sft_train` takes conversations without a rollout as demonstrations"


def _find_call_messages(trajectory: Trajectory) -> set[int] | None:
    """The messages that calls gave; None where some call does not say."""
    calls = [call for call in trajectory.calls if call.error is None]
    places = {call.message_index for call in calls if call.message_index is not None}
    return places if calls and len(places) == len(calls) else None


def _count_prompt_messages(sample: Sample, messages: Sequence[Message]) -> int:
    """How many messages of the trajectory were there before the first answer."""
    if isinstance(sample.prompt, str):
        return 0
    prompt = sample.prompt
    if [_to_comparable(message) for message in messages[: len(prompt)]] == [
        _to_comparable(one) for one in prompt
    ]:
        return len(prompt)
    if any(message.role == "assistant" for message in prompt):
        raise TokenError(
            "the trajectory does not begin with the prompt, which contains answers: the answers "
            "to learn from are ambiguous",
            where=f"sample {sample.id}",
            hint="set `message_index` on the trajectory's calls",
        )
    return 0


def _to_comparable(message: Message) -> tuple[str, str, tuple[ToolCall, ...]]:
    return message.role, message.text, message.tool_calls


def _read_message_weight(message: Message) -> object:
    return (message.__pydantic_extra__ or {}).get("weight")


def _attach_calls(
    made: Sequence[TokenTurn], places: Sequence[int], trajectory: Trajectory
) -> list[TokenTurn]:
    """The turns, each with the call that was recorded for its message."""
    calls: dict[int | None, ModelCall] = {call.message_index: call for call in trajectory.calls}
    return [
        TokenTurn(turn.prompt, turn.completion, call=calls.get(place))
        for turn, place in zip(made, places, strict=True)
    ]


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
_ANSWER_PROBES = {"plain": (_TALK, (1, 3)), "reasoning": (_THOUGHT, (1, 3))}
_CALL = ToolCall(id="callabcde", name="look_up", arguments={"city": "Ghent"})
_TOOL_TALK = (
    Message(role="user", content="Is it raining?"),
    Message(role="assistant", content="", tool_calls=(_CALL,)),
    Message(role="tool", content="drizzle", tool_call_id="callabcde", name="look_up"),
)
_CONTEXT_ROLES = {"system": "system", "developer": "system", "tool": "tool", "function": "tool"}
_CONTEXT_PROBES = {
    "system": ((Message(role="system", content="Be brief"), *_TALK), ("Be brief",)),
    "tool": (_TOOL_TALK, ("look_up", "city", "Ghent", "drizzle")),
}
"""What a template must write of a talk, where a sample has messages of such a role."""


def _find_end_token(template: ChatTemplate, talk: Sequence[Message], places: Sequence[int]) -> int:
    """The token that ends an answer of this kind, or `TokenError`."""
    turns = [template.turn(talk, place) for place in places]
    ends = {turn.completion[-1] for turn in turns}
    if len(ends) > 1:
        raise TokenError(
            f"the template ends two answers of one talk with different tokens: {sorted(ends)}",
            where="the chat template",
        )
    return ends.pop()
