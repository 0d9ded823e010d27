"""The policy behind a server: the version of the weights that sampled, and stale rollouts."""

import asyncio
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

from assay.errors import ConfigError, EndpointError, TrainingError
from assay.providers import ClientSettings, VersionedClient, connect
from assay.types import Endpoint, Message, ModelCall, Sample

from .batches import RolloutGroup
from .grpo_config import GRPOConfig, build_server_endpoint
from .policy import Policy
from .rollout_collector import StepInterrupted, StepRollouts
from .token_spans import is_sampled_turn
from .training_session import ServerUnreachable, TrainingSession
from .weight_updates import PolicyWeights, UploadWeights, WeightUpdate, update_patiently

_VERSION = re.compile(r"step-([0-9]{1,12})")
# Mean difference in nats. Half precision and other kernels stay far below; another model, another
# version or logprobs before temperature are above.
_MAX_LOGPROB_GAP = 0.3
# A restarted server has its first weights until the next update: one such step is survived.
_MAX_STALE_STEPS = 2
# Of the trained model, in nats: a server that has the new weights cannot answer as before.
_REAL_CHANGE = 0.03
# Batches of other sizes change the last bits of a logprob.
_SAME_LOGPROB = 1e-5
_PROBE = Message(role="user", content="Hello")
# Asked after every update, so it is short.
_MAX_PROBE_TOKENS = 16


class EveryRolloutStale(TrainingError):
    """Every rollout of several steps was too old to learn from."""


class ServedPolicy:
    """The server that samples for a policy in this process."""

    def __init__(self, config: GRPOConfig, policy: Policy, session: TrainingSession) -> None:
        self._config = config
        self._policy = policy
        self._session = session
        self._stopped = asyncio.Event()
        session.stop.listen(self._stopped.set)
        self._endpoint = build_server_endpoint(config)
        self._update_weights = config.update_weights or UploadWeights()
        settings = ClientSettings(concurrency=config.concurrency)
        self.client = VersionedClient(connect(self._endpoint, settings))
        self._stale_steps = 0
        self._seen: tuple[list[int], Sequence[float], Sequence[float]] | None = None
        """The last new answer to the probe: its ids, its logprobs, and those of the policy."""

    async def start(self, step: int) -> None:
        """Send the weights and try one call. Raises `ConfigError` for an unfit server."""
        try:
            # Not patiently: before a training begins, nothing is lost.
            await self._push(step, self._update_weights)
            call = await self._ask_probe()
            where = str(self._endpoint.api_base)
            check_recorded_tokens(call, where=where)
            check_tokenizer(call, self._policy.local.tokenizer, where=where)
            if problem := await asyncio.to_thread(self._find_other_weights, call, f"step-{step}"):
                raise ConfigError(
                    f"the server does not sample with the weights of the trained model: {problem}",
                    where=where,
                    hint="serve the model that `model_name` names, and check `update_weights`; vLLM"
                    " needs --logprobs-mode processed_logprobs at another temperature than 1",
                )
        except BaseException:
            await self.client.close()
            raise

    async def push(self, step: int) -> None:
        """Make the server sample with the policy's present weights, as those of `step`.

        Raises `TrainingError` if it still answers with other weights afterwards, and
        `StepInterrupted` after a stop request while the server is unreachable.
        """
        update = partial(update_patiently, self._update_and_check, wait=self._wait_for_server)
        await self._push(step, update)

    async def _wait_for_server(self, seconds: float, error: EndpointError) -> None:
        if self._session.watch is not None:
            self._session.watch(ServerUnreachable(str(error.where), error.message, seconds))
        if not self._session.stop.requested:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopped.wait(), seconds)
        if self._session.stop.requested:
            raise StepInterrupted

    async def _push(self, step: int, update: WeightUpdate) -> None:
        model = await asyncio.to_thread(self._policy.weights.merge)
        weights = PolicyWeights(f"step-{step}", model, self._policy.local.tokenizer)
        await update(weights, self._endpoint)
        self.client.version = weights.version

    async def _update_and_check(self, weights: PolicyWeights, endpoint: Endpoint) -> None:
        # Twice: a server that was restarted just after the update has its first weights again.
        for _ in range(2):
            await self._update_weights(weights, endpoint)
            call = await self._ask_probe()
            problem = await asyncio.to_thread(self._find_other_weights, call, weights.version)
            if problem is None:
                return
        raise TrainingError(
            f"the server ignored the update to {weights.version!r}: {problem}",
            where=str(endpoint.api_base),
            hint="check that `update_weights` reaches every process that answers, and resume",
        )

    async def _ask_probe(self) -> ModelCall:
        tokens = min(self._config.max_tokens, _MAX_PROBE_TOKENS)
        endpoint = self._endpoint.model_copy(update={"max_tokens": tokens})
        # A client of its own: rollouts in flight do not delay it, and its version is the server's.
        async with connect(endpoint) as client:
            return (await client.complete([_PROBE], seed=self._config.seed)).call

    def _find_other_weights(self, call: ModelCall, version: str) -> str | None:
        """Return what shows that other weights than the policy's answered; None: nothing does."""
        if call.weight_version not in (None, version):
            return f"it answers as {call.weight_version!r}"
        if not (call.prompt_ids and call.completion_ids and call.logprobs):
            return None  # an empty answer shows nothing
        ids, seen = [*call.prompt_ids, *call.completion_ids], self._seen
        own = self._compute_own_logprobs(ids, len(call.completion_ids))
        if own is None:
            return "it returned token ids that the trained model does not have"
        if seen is None or seen[0] != ids or _compute_gap(seen[1], call.logprobs) > _SAME_LOGPROB:
            self._seen = (ids, call.logprobs, own)
        elif _compute_gap(seen[2], own) > _REAL_CHANGE:
            return "its logprobs are still the same, though those of the trained model changed"
        gap = _compute_gap(own, call.logprobs)
        # With `top_p` or `top_k` they are those of a cut distribution. A gap may be no number.
        if self._config.importance_cap is not None and not gap <= _MAX_LOGPROB_GAP:
            return (
                f"its logprobs differ from those of the trained model by {gap:.2f} on average, "
                f"more than {_MAX_LOGPROB_GAP}"
            )
        return None

    def drop_stale(self, collected: StepRollouts, step: int) -> StepRollouts:
        """Return the rollouts that step may learn from. Raises `EveryRolloutStale`."""
        kept = drop_stale_rollouts(
            collected, learned=step - 1, max_staleness=self._config.max_staleness
        )
        usable = any(group.samples for group in kept.groups)
        self._stale_steps = 0 if usable else self._stale_steps + 1
        if self._stale_steps > _MAX_STALE_STEPS:
            found = ", ".join(map(repr, kept.weight_versions or {}))
            raise EveryRolloutStale(
                f"every rollout of {self._stale_steps} steps was sampled by weights that are too "
                f"old: step {step} accepts 'step-{max(0, step - 1 - self._config.max_staleness)}' "
                f"or newer, and the server answered as {found}",
                where=str(self._endpoint.api_base),
                hint="check that `update_weights` reaches the server, and resume",
            )
        return kept

    def _compute_own_logprobs(self, ids: Sequence[int], count: int) -> list[float] | None:
        """Return the policy's logprobs of the last `count` ids; None if it does not have one."""
        import torch

        model = self._policy.local.model
        if max(ids) >= model.get_input_embeddings().num_embeddings:
            return None
        given = torch.tensor([ids], device=self._policy.local.device)
        with torch.no_grad(), self._policy.local.limit_threads(), self._policy.local.autocast():
            logits = model(input_ids=given[:, :-1], use_cache=False).logits[0, -count:]
        own = (logits.float() / self._config.temperature).log_softmax(-1)
        found: list[float] = own.gather(-1, given[0, -count:, None])[:, 0].tolist()
        return found


def _compute_gap(one: Sequence[float], other: Sequence[float]) -> float:
    return fmean(abs(a - b) for a, b in zip(one, other, strict=True))


def check_recorded_tokens(call: ModelCall, *, where: str) -> None:
    """Raise `ConfigError` if an answer lacks token ids or logprobs."""
    fields = {
        "`prompt_token_ids`": call.prompt_ids,
        "`token_ids`": call.completion_ids,
        "`logprobs`": call.logprobs,
    }
    if missing := [name for name, value in fields.items() if not value]:
        left_out = (call.model_extra or {}).get("logprobs_left_out")
        reason = "" if left_out is None else f" that can be used: {left_out}"
        raise ConfigError(
            f"the server cannot be trained against: its answer has no {' and no '.join(missing)}"
            f"{reason}",
            where=where,
            hint="use a server that honours `return_token_ids` and `logprobs`, such as vLLM or "
            "examples/serve",
        )


def check_tokenizer(call: ModelCall, tokenizer: Any, *, where: str) -> None:
    """Raise `ConfigError` if the prompt that the server read is not the text that was sent."""
    # As the trained model's tokenizer has it: it may not know every character.
    text = tokenizer.decode(tokenizer.encode(_PROBE.text, add_special_tokens=False)).strip()
    read = tokenizer.decode(list(call.prompt_ids or ()))
    if text not in read:
        raise ConfigError(
            f"the server has another tokenizer than the trained model, which reads {text!r} as "
            f"{read[:80]!r} in the token ids of the server",
            where=where,
            hint="serve the model and the tokenizer that `model_name` names",
        )


def find_oldest_version(sample: Sample) -> tuple[str | None, int | None]:
    """Return the oldest version of the weights that sampled a turn of a rollout, and its step.

    Both are None without a sampled turn. The step of a version that is no `step-N` is None: such
    weights are of unknown age.
    """
    calls = () if sample.trajectory is None else sample.trajectory.calls
    versions = {str(call.weight_version) for call in calls if is_sampled_turn(call)}
    if not versions:
        return None, None
    steps = {version: _VERSION.fullmatch(version) for version in versions}
    for version, match in sorted(steps.items()):
        if match is None:
            return version, None
    step, version = min((int(match[1]), version) for version, match in steps.items() if match)
    return version, step


def drop_stale_rollouts(
    collected: StepRollouts, *, learned: int, max_staleness: int
) -> StepRollouts:
    """Return the rollouts without those that weights of more than `max_staleness` steps ago made.

    `learned` is the number of steps that the policy has learned from. Failed rollouts stay.
    """
    versions = Counter[str]()
    staleness: list[int] = []
    groups, stale = [], 0
    for group in collected.groups:
        kept = []
        for sample in group.samples:
            version, step = find_oldest_version(sample)
            if sample.failure is None and version is not None:
                versions[version] += 1
                if step is None or learned - step > max_staleness:
                    stale += 1
                    continue
                staleness.append(max(0, learned - step))
            kept.append(sample)
        groups.append(RolloutGroup(tuple(kept)))
    return replace(
        collected,
        groups=groups,
        stale=stale,
        staleness=tuple(staleness),
        weight_versions=dict(sorted(versions.items())),
    )
