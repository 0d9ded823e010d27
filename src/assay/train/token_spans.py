"""Tokens and loss masks from recorded calls, never from roles or text.

A token is in the loss mask if a recorded call sampled it. A call that does not continue the tokens
so far starts a new sample: every sampled token counts exactly once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NoReturn

from assay.errors import TokenError
from assay.types import ModelCall, Sample, Trajectory, stable_id

TokenSource = Literal["recorded", "retokenized"]

TOKEN_SOURCE = "token_source"
"""Key of `Sample.metadata`: where the tokens come from. See `token_source()`."""

FORK, FORKS = "fork", "forks"
"""Keys of `Sample.metadata`: which of how many samples of one rollout, where there are several."""

_RETOKENIZE_HINT = (
    "for SFT, `retokenize_sample()` tokenizes the text; RL needs the tokens that were sampled"
)


def tokenize_sample(sample: Sample) -> list[Sample]:
    """Samples with `tokens`, `loss_mask` and `rollout_log_probs` from the calls of the trajectory.

    One where each call's prompt extends the tokens so far; else several, which share rollout_id,
    group and score, and each hold their own calls. The mask is 1.0 on what calls sampled.
    `rollout_log_probs` is as long as `tokens`, with 0.0 off the mask; it is None where a call has
    no logprobs. Raises `TokenError` for a call without ids. Tokenising twice changes nothing.
    """
    where = f"sample {sample.id}"
    if sample.trajectory is None or not sample.trajectory.calls:
        raise TokenError(
            "the sample has no recorded model call", where=where, hint=_RETOKENIZE_HINT
        )
    turns = [
        _read_call_turn(call, f"{where}, call {number}")
        for number, call in enumerate(sample.trajectory.calls, start=1)
        if is_sampled_turn(call)
    ]
    if not turns:
        raise TokenError("every recorded call failed: nothing was sampled", where=where)
    return assemble_samples(sample, turns, source="recorded")


def has_sampled_turn(sample: Sample) -> bool:
    """Whether a model answered in the rollout: without an answer, there is nothing to train on."""
    return sample.trajectory is not None and any(map(is_sampled_turn, sample.trajectory.calls))


def is_sampled_turn(call: ModelCall) -> bool:
    """Whether the call sampled an answer of the rollout that was scored."""
    # Failed calls have no tokens. Titles and summaries are not what the rollout was scored for.
    return call.purpose == "turn" and (call.error is None or call.completion_ids is not None)


@dataclass(frozen=True)
class TokenTurn:
    """The token ids of one turn: prompt and completion."""

    prompt: tuple[int, ...]
    completion: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    call: ModelCall | None = None


def assemble_samples(
    sample: Sample, turns: Sequence[TokenTurn], *, source: TokenSource
) -> list[Sample]:
    """Build samples from turns: one, as long as each turn continues the tokens so far."""
    chains: list[_Chain] = []
    for turn in turns:
        # Several may fit, since several agents may alternate in one rollout: take the longest.
        fitting = [
            chain for chain in chains if list(turn.prompt[: len(chain.tokens)]) == chain.tokens
        ]
        chain = max(fitting, key=lambda each: len(each.tokens), default=None)
        if chain is None:
            chains.append(chain := _Chain())
        chain.append(turn)
    return list(_split_by_chain(sample, chains, source))


def token_source(sample: Sample) -> TokenSource | None:
    """Return the source of the tokens: recorded or text. None: no tokens, or unknown."""
    source = sample.metadata.get(TOKEN_SOURCE)
    return source if source in ("recorded", "retokenized") and sample.tokens else None


def check_tokens(sample: Sample) -> None:
    """Raise `TokenError` unless the tokens, mask and logprobs of a sample fit each other."""
    where, tokens, mask = f"sample {sample.id}", sample.tokens, sample.loss_mask
    problem = None
    if not tokens:
        problem = "the sample has no tokens"
    elif len(mask) != len(tokens):
        problem = f"the sample has {len(mask)} mask values for {len(tokens)} tokens"
    elif min(tokens) < 0:
        problem = f"the sample has the token id {min(tokens)}"
    elif wrong := [value for value in mask if value not in (0.0, 1.0)]:
        problem = f"the sample has the mask value {wrong[0]:g}, which is neither 0 nor 1"
    elif mask[0] != 0.0:
        # A causal model predicts each token from those before it.
        problem = "the mask is on at the first token, which has no context to be predicted from"
    elif sample.rollout_log_probs is not None and len(sample.rollout_log_probs) != len(tokens):
        problem = (
            f"the sample has {len(sample.rollout_log_probs)} logprobs for {len(tokens)} tokens"
        )
    if problem:
        raise TokenError(
            problem, where=where, hint="omit `tokens` to have them built from the recorded calls"
        )


@dataclass
class _Chain:
    tokens: list[int] = field(default_factory=list)
    mask: list[float] = field(default_factory=list)
    logprobs: list[float] | None = field(default_factory=list)
    turns: list[TokenTurn] = field(default_factory=list)

    def append(self, turn: TokenTurn) -> None:
        context = turn.prompt[len(self.tokens) :]
        self.tokens += (*context, *turn.completion)
        self.mask += [0.0] * len(context) + [1.0] * len(turn.completion)
        if turn.logprobs is None:
            self.logprobs = None
        elif self.logprobs is not None:
            self.logprobs += [0.0] * len(context) + list(turn.logprobs)
        self.turns.append(turn)


def _read_call_turn(call: ModelCall, where: str) -> TokenTurn:
    prompt, completion = call.prompt_ids, call.completion_ids
    if prompt is None or completion is None:
        missing = "prompt_ids" if prompt is None else "completion_ids"
        raise TokenError(f"the engine returned no `{missing}`", where=where, hint=_RETOKENIZE_HINT)
    if not prompt:
        _raise_damaged_call(
            "`prompt_ids` is empty, so the first sampled token has no context", where
        )
    if (least := min((*prompt, *completion))) < 0:
        _raise_damaged_call(f"{least} is not a token id", where)
    if call.logprobs is not None and len(call.logprobs) != len(completion):
        _raise_damaged_call(
            f"the call has {len(call.logprobs)} logprobs for {len(completion)} completion ids",
            where,
        )
    return TokenTurn(prompt, completion, call.logprobs, call)


def _raise_damaged_call(problem: str, where: str) -> NoReturn:
    raise TokenError(problem, where=where, hint="the recorded call is damaged; roll out again")


def _split_by_chain(
    sample: Sample, chains: Sequence[_Chain], source: TokenSource
) -> Iterator[Sample]:
    trajectory = sample.trajectory or Trajectory()
    rollout_id = sample.rollout_id or stable_id([sample.id, sample.index, trajectory.to_dict()])
    calls = [[turn.call for turn in chain.turns if turn.call is not None] for chain in chains]
    taken = {id(call) for own in calls for call in own}
    # Calls without tokens, such as failed ones, stay with the first sample.
    calls[0] += [call for call in trajectory.calls if id(call) not in taken]
    for place, chain in enumerate(chains):
        metadata = {**sample.metadata, TOKEN_SOURCE: source}
        fields: dict[str, object] = {
            "rollout_id": rollout_id,
            "tokens": chain.tokens,
            "loss_mask": chain.mask,
            "rollout_log_probs": chain.logprobs,
            "metadata": metadata,
        }
        if len(chains) > 1:
            metadata |= {FORK: place, FORKS: len(chains)}
            # Each with its own calls only: tokenizing again must not repeat a token.
            fields["trajectory"] = trajectory.model_copy(update={"calls": calls[place]})
            fields["id"] = f"{sample.id}#fork-{place}" if place else sample.id
        yield sample.model_copy(update=fields)
