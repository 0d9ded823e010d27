"""The policy behind a server: the version of the weights that sampled, and stale rollouts."""

import asyncio
import re
from collections import Counter
from dataclasses import replace
from functools import partial

from assay.errors import ConfigError, TrainingError
from assay.providers import ClientSettings, VersionedClient, connect
from assay.types import Message, ModelCall, Sample

from .batches import RolloutGroup
from .grpo_config import GRPOConfig, build_server_endpoint
from .policy import Policy
from .rollout_collector import StepRollouts
from .weight_updates import PolicyWeights, UploadWeights, WeightUpdate, update_patiently

_VERSION = re.compile(r"step-([0-9]{1,12})")
# Mean difference in nats. Half precision and other kernels stay far below; another model, another
# version or logprobs before temperature are above.
_MAX_LOGPROB_GAP = 0.3
# A restarted server has its first weights until the next update: one such step is survived.
_MAX_STALE_STEPS = 2
_PROBE = Message(role="user", content="Hello")


class EveryRolloutStale(TrainingError):
    """Every rollout of several steps was too old to learn from."""


class ServedPolicy:
    """The server that samples for a policy in this process."""

    def __init__(self, config: GRPOConfig, policy: Policy) -> None:
        self._config = config
        self._policy = policy
        self._endpoint = build_server_endpoint(config)
        self._update_weights = config.update_weights or UploadWeights()
        settings = ClientSettings(concurrency=config.concurrency)
        self.client = VersionedClient(connect(self._endpoint, settings))
        self._stale_steps = 0

    async def start(self, step: int) -> None:
        """Send the weights and try one call. Raises `ConfigError` for an unfit server."""
        try:
            # Not patiently: before a training begins, nothing is lost.
            await self._push(step, self._update_weights)
            reply = await self.client.complete([_PROBE], seed=self._config.seed)
            where = str(self._endpoint.api_base)
            check_recorded_tokens(reply.call, where=where)
            if self._config.importance_cap is not None:
                gap = await asyncio.to_thread(self._measure_logprob_gap, reply.call)
                check_logprob_gap(gap, where=where)
        except BaseException:
            await self.client.close()
            raise

    async def push(self, step: int) -> None:
        """Make the server sample with the policy's present weights, as those of `step`."""
        await self._push(step, partial(update_patiently, self._update_weights))

    async def _push(self, step: int, update: WeightUpdate) -> None:
        model = await asyncio.to_thread(self._policy.weights.merge)
        weights = PolicyWeights(f"step-{step}", model, self._policy.local.tokenizer)
        await update(weights, self._endpoint)
        self.client.version = weights.version

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

    def _measure_logprob_gap(self, call: ModelCall) -> float | None:
        import torch

        ids = [*(call.prompt_ids or ()), *(call.completion_ids or ())]
        model, count = self._policy.local.model, len(call.completion_ids or ())
        if max(ids) >= model.get_input_embeddings().num_embeddings:
            return None
        given = torch.tensor([ids], device=self._policy.local.device)
        with torch.no_grad(), self._policy.local.limit_threads(), self._policy.local.autocast():
            logits = model(input_ids=given[:, :-1], use_cache=False).logits[0, -count:]
        own = (logits.float() / self._config.temperature).log_softmax(-1)
        own = own.gather(-1, given[0, -count:, None])[:, 0].cpu()
        return float((own - torch.tensor(call.logprobs or ())).abs().mean())


def check_recorded_tokens(call: ModelCall, *, where: str) -> None:
    """Raise `ConfigError` if an answer lacks token ids or logprobs."""
    fields = {
        "`prompt_token_ids`": call.prompt_ids,
        "`token_ids`": call.completion_ids,
        "`logprobs`": call.logprobs,
    }
    if missing := [name for name, value in fields.items() if not value]:
        raise ConfigError(
            f"the server cannot be trained against: its answer has no {' and no '.join(missing)}",
            where=where,
            hint="use a server that honours `return_token_ids` and `logprobs`, such as vLLM or "
            "examples/serve",
        )


def check_logprob_gap(gap: float | None, *, where: str) -> None:
    """Raise `ConfigError` if the server samples from another distribution than the policy's.

    `gap` is the mean difference of logprobs; None: the server has other tokens.
    """
    if gap is None:
        raise ConfigError(
            "the server returned token ids that the trained model does not have",
            where=where,
            hint="serve the model that `model_name` names",
        )
    # A gap that is not a number is above, too.
    if not gap <= _MAX_LOGPROB_GAP:
        raise ConfigError(
            f"the server's logprobs differ from those of the trained model by {gap:.2f} on "
            f"average, more than {_MAX_LOGPROB_GAP}",
            where=where,
            hint="serve the same model; vLLM needs --logprobs-mode processed_logprobs at another "
            "temperature than 1",
        )


def find_oldest_version(sample: Sample) -> tuple[str | None, int | None]:
    """Return the oldest version of the weights that sampled a turn of a rollout, and its step.

    Both are None without a sampled turn. The step of a version that is no `step-N` is None: such
    weights are of unknown age.
    """
    calls = () if sample.trajectory is None else sample.trajectory.calls
    versions = {str(call.weight_version) for call in calls if call.purpose == "turn"}
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
