"""The policy that is trained: its weights, its optimiser, and one update at a time."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from assay.providers import LocalModel

from .batches import MicroBatch, TrainedRollout, build_micro_batch, compute_step_size, pack_rollouts
from .checkpoints import digest_weights
from .grpo_config import GRPOConfig
from .losses import LossSums, TokenTerms, compute_grpo_loss
from .memory_estimate import compute_logits_per_pass
from .recomputation import recompute_layers, should_recompute
from .shared_prompts import compute_logits_after
from .trained_weights import TrainedWeights, cast_to_float32, set_compute_dtype

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class UpdateStats:
    """The statistics of one step's updates. Means are over tokens."""

    loss: float
    """The loss of the first update."""

    grad_norm: float
    """Before clipping, the largest over the step's updates."""

    entropy: float
    """The policy's entropy at the sampled tokens, before the step."""

    sums: LossSums
    """Over all updates of the step."""

    changed: float | None = None
    """The share of the weights that an update changed, the largest over the step's updates."""


class Policy:
    """A model in this process with its optimiser.

    It stays in evaluation mode: dropout would make logprobs incomparable with the recorded ones.
    """

    def __init__(self, local: LocalModel, config: GRPOConfig) -> None:
        self.local = local
        self._config = config
        if config.lora is None:
            cast_to_float32(local)
        set_compute_dtype(local, config.dtype)
        self.reference: Any = None
        """The model as it was before training, where a copy of it is needed."""

        if config.needs_reference and config.lora is None:
            self.reference = copy.deepcopy(local.model).eval().requires_grad_(False)
        self.weights = TrainedWeights(local, lora=config.lora, weight_decay=config.weight_decay)
        local.model.eval()
        self._recomputes = should_recompute(local, config.gradient_checkpointing)

    def update(self, rollouts: Sequence[TrainedRollout], *, learning_rate: float) -> UpdateStats:
        """Update on a step's rollouts. Raises `TrainingError` for a gradient that is not finite."""
        with ExitStack() as stack:
            stack.enter_context(self.local.limit_threads())
            passes = self._build_passes(rollouts)
            if self._recomputes:
                stack.enter_context(recompute_layers(self.local.model))
            stats = [
                self._update_once(passes, learning_rate)
                for _ in range(self._config.updates_per_step)
            ]
        return UpdateStats(
            loss=stats[0].loss,
            grad_norm=max(each.grad_norm for each in stats),
            entropy=stats[0].entropy,
            sums=reduce(add, (each.sums for each in stats)),
            changed=max((each.changed for each in stats if each.changed is not None), default=None),
        )

    def digest_initial_weights(self) -> str | None:
        """Return a digest of the initial weights, to recognise them on a resume.

        None where checkpoints contain everything: without a reference or frozen weights.
        """
        if self._config.lora is None and not self._config.needs_reference:
            return None
        return digest_weights(dict(self.local.model.named_parameters()))

    def _build_passes(self, rollouts: Sequence[TrainedRollout]) -> "list[_Pass]":
        # Old and reference logprobs are computed here, before the first update changes the weights.
        config, model = self._config, self.local.model
        size = compute_step_size(rollouts, config)
        vocabulary = model.get_input_embeddings().num_embeddings
        most = compute_logits_per_pass(config.micro_batch_bytes, vocabulary)
        passes = []
        for some in pack_rollouts(rollouts, config.micro_batch_tokens, most):
            batch = build_micro_batch(some, size, config, device=self.local.device)
            if self._recomputes:
                # Recomputed layers cannot write to the key-value cache of a shared prompt.
                batch = replace(batch, shared=None)
            old_N = reference_N = None
            # With a single update the policy is still the old one: `_update_once` computes them.
            if config.updates_per_step > 1:
                old_N = self._compute_frozen_logprobs(model, batch)
            if config.needs_reference and self.reference is not None:
                reference_N = self._compute_frozen_logprobs(self.reference, batch)
            elif config.needs_reference:
                with model.disable_adapter():
                    reference_N = self._compute_frozen_logprobs(model, batch)
            passes.append(_Pass(batch, old_N, reference_N))
        return passes

    def _compute_frozen_logprobs(self, model: Any, batch: MicroBatch) -> "Tensor":
        import torch

        with torch.no_grad(), self.local.autocast():
            return compute_token_logprobs(model, batch, self._config.temperature)[0]

    def _update_once(self, passes: "Sequence[_Pass]", learning_rate: float) -> UpdateStats:
        total_loss = entropy = 0.0
        sums: list[LossSums] = []
        self.weights.zero_grad()
        for each in passes:
            batch = each.batch
            with self.local.autocast():
                logprobs_N, entropy_N = compute_token_logprobs(
                    self.local.model, batch, self._config.temperature
                )
            terms = TokenTerms(
                logprobs_N=logprobs_N,
                old_N=logprobs_N.detach() if each.old_N is None else each.old_N,
                recorded_N=batch.recorded_N,
                reference_N=each.reference_N,
                advantages_N=batch.advantages_N,
                scale_N=batch.scale_N,
                rollout_N=batch.rollout_N,
                rollouts=batch.rollouts,
            )
            # The loss is scaled by the whole step: gradients just add up over its passes.
            loss, part = compute_grpo_loss(terms, self._config)
            loss.backward()
            total_loss += float(loss.detach())
            entropy += float(entropy_N.sum())
            sums.append(part)
        norm = self.weights.update(
            learning_rate=learning_rate, max_grad_norm=self._config.max_grad_norm
        )
        total = reduce(add, sums)
        return UpdateStats(total_loss, norm, entropy / total.tokens, total, self.weights.changed)


@dataclass(frozen=True)
class _Pass:
    batch: MicroBatch
    old_N: "Tensor | None"
    reference_N: "Tensor | None"


def compute_token_logprobs(
    model: Any, batch: MicroBatch, temperature: float
) -> "tuple[Tensor, Tensor]":
    """The logprob of each trained token and the entropy it was drawn with, in fp32."""
    all_N = (_compute_trained_logits(model, batch).float() / temperature).log_softmax(-1)
    target_N = batch.ids_RT[batch.row_N, batch.place_N]
    known = all_N.detach()
    return all_N.gather(-1, target_N[:, None])[:, 0], -(known.exp() * known).sum(-1)


def _compute_trained_logits(model: Any, batch: MicroBatch) -> "Tensor":
    # The logits that predict a token are at the position before it.
    before_N, shared = batch.place_N - 1, batch.shared
    if shared is not None and (logits_RT := compute_logits_after(model, shared)) is not None:
        return logits_RT[batch.row_N, before_N - shared.start_R[batch.row_N]]
    # No attention mask is needed: padding is on the right, which causal attention never reads.
    # The last column predicts nothing, and prompts before the first trained token need no logits.
    ids_RT = batch.ids_RT[:, :-1]
    kept = ids_RT.shape[1] - batch.first_place + 1
    logits_RT = model(input_ids=ids_RT, use_cache=False, logits_to_keep=kept).logits
    found: Tensor = logits_RT[batch.row_N, before_N - (ids_RT.shape[1] - logits_RT.shape[1])]
    return found


@contextmanager
def fix_seed(seed: int) -> Iterator[None]:
    """Seed torch inside the context, and restore its random state afterwards."""
    import torch

    # The caller may have its own use of the global generator.
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
