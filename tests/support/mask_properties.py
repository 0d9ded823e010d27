"""What must hold between a rollout's recorded calls and the samples that were made of it.

Each property is a function from both to what is wrong, so that a test can also show it saying no.
"""

from collections.abc import Callable, Iterator, Sequence

from assay.types import ModelCall, Sample
from mask_rollouts import TEMPERATURE, recomputed, tokenizer_of, weights_of

Property = Callable[[str, Sample, Sequence[Sample]], Iterator[str]]
TOLERANCE = 1e-4


def calls_of(rollout: Sample) -> list[ModelCall]:
    """The calls that are trained on: not the titles and summaries of an agent."""
    assert rollout.trajectory is not None
    return [call for call in rollout.trajectory.calls if call.purpose == "turn"]


def whole(call: ModelCall) -> list[int]:
    return [*(call.prompt_ids or ()), *(call.completion_ids or ())]


def same_logprobs(name: str, rollout: Sample, made: Sequence[Sample]) -> Iterator[str]:
    """Frozen weights give each token that counts the logprob that was recorded for it."""
    for sample in made:
        known = recomputed(weights_of(name), sample.tokens, TEMPERATURE)
        for place, counts in enumerate(sample.loss_mask):
            recorded = (sample.rollout_log_probs or [])[place]
            if counts and abs(known[place] - recorded) > TOLERANCE:
                yield f"token {place}: recorded {recorded}, recomputed {known[place]}"
            if not counts and recorded != 0.0:
                yield f"token {place} does not count and has the logprob {recorded}"


def counted_once(name: str, rollout: Sample, made: Sequence[Sample]) -> Iterator[str]:
    """Over all samples of a rollout, as many tokens count as were sampled."""
    sampled = sum(len(call.completion_ids or ()) for call in calls_of(rollout))
    counted = sum(sum(sample.loss_mask) for sample in made)
    if counted != sampled:
        yield f"{counted} tokens count, {sampled} were sampled"


def exact_slices(name: str, rollout: Sample, made: Sequence[Sample]) -> Iterator[str]:
    """Each call's prompt and completion are the beginning of a sample that counts the latter."""
    for number, call in enumerate(calls_of(rollout)):
        read, all_ids = len(call.prompt_ids or ()), whole(call)
        holders = [
            sample
            for sample in made
            if sample.tokens[: len(all_ids)] == all_ids
            and set(sample.loss_mask[read : len(all_ids)]) == {1.0}
        ]
        if len(holders) != 1:
            yield f"call {number} is the beginning of {len(holders)} samples"


def stops_count_when_sampled(name: str, rollout: Sample, made: Sequence[Sample]) -> Iterator[str]:
    """A stop token counts where the engine sampled it, and nowhere else."""
    stop = tokenizer_of(name).eos_token_id
    sampled = sum((call.completion_ids or ()).count(stop) for call in calls_of(rollout))
    counted = sum(
        token == stop and counts == 1.0
        for sample in made
        for token, counts in zip(sample.tokens, sample.loss_mask, strict=True)
    )
    if counted != sampled:
        yield f"{counted} stop tokens count, {sampled} were sampled"


def prompts_do_not_count(name: str, rollout: Sample, made: Sequence[Sample]) -> Iterator[str]:
    """Nothing that the first call of a sample read counts: answers in the prompt are context."""
    for place, sample in enumerate(made):
        first = min(len(call.prompt_ids or ()) for call in calls_of(sample))
        if any(sample.loss_mask[:first]):
            yield f"sample {place} counts tokens of its prompt"


PROPERTIES: dict[str, Property] = {
    "P1 same logprobs": same_logprobs,
    "P2 counted once": counted_once,
    "P3 exact slices": exact_slices,
    "P5 stop tokens": stops_count_when_sampled,
    "P7 prompts": prompts_do_not_count,
}


def broken(name: str, rollout: Sample, made: Sequence[Sample]) -> set[str]:
    """The properties that do not hold, by their number."""
    return {
        title.split()[0]
        for title, holds in PROPERTIES.items()
        if any(True for _ in holds(name, rollout, made))
    }
