"""Sample from a causal language model in batches, with logprobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from assay.errors import ConfigError, EndpointError

NEVER = -1
"""As the only stop id: a completion ends by its length only."""

# The batch is compacted when at most this share of its rows is unfinished: compacting copies
# the cache.
_SPARSE = 0.5
ShouldStop = Callable[[int, Sequence[int]], bool]
"""Called after each token with the index of the prompt and its sampled ids."""


@dataclass(frozen=True)
class Sampling:
    """The sampling settings of one prompt."""

    temperature: float = 1.0
    """0 is greedy; other values divide the logits."""

    top_p: float = 1.0
    """Keep the most likely tokens up to this total probability; 1 keeps all."""

    top_k: int = 0
    """Keep this many of the most likely tokens; 0 keeps all."""

    max_tokens: int = 256
    stop_ids: tuple[int, ...] = ()
    """Tokens that end a completion. Empty: those of the model; `(NEVER,)`: none."""

    def __post_init__(self) -> None:
        wrong = None
        if not isfinite(self.temperature) or self.temperature < 0:
            wrong = f"temperature={self.temperature!r} is not a number of at least 0"
        elif not 0 < self.top_p <= 1:
            wrong = f"top_p={self.top_p!r} is not above 0 and at most 1"
        elif type(self.top_k) is not int or self.top_k < 0:
            wrong = f"top_k={self.top_k!r} is not a whole number of at least 0"
        elif type(self.max_tokens) is not int or self.max_tokens < 1:
            wrong = f"max_tokens={self.max_tokens!r} is not a whole number of at least 1"
        if wrong:
            raise ConfigError(wrong, where="Sampling")


@dataclass(frozen=True)
class Generated:
    """The completion of one prompt."""

    ids: tuple[int, ...]
    """Includes the stop token, if one ended it."""

    logprobs: tuple[float, ...]
    """One for each id, under the distribution it was drawn from: after temperature, top-k and
    top-p. At temperature 0, where nothing is drawn, under the model's own (temperature 1)."""

    finish_reason: Literal["stop", "length"]


class Decoder:
    """Decodes one batch. Finished rows leave it, so that the last ones run faster."""

    def __init__(
        self, model: Any, prompts: Sequence[Sequence[int]], samplings: Sequence[Sampling]
    ) -> None:
        import torch

        self._torch = torch
        self._model = model
        self._device = next(model.parameters()).device
        self._samplings = list(samplings)
        self._rows = list(range(len(prompts)))
        """The prompt index of each row of the batch."""

        self._ids: list[list[int]] = [[] for _ in prompts]
        self._logprobs: list[list[float]] = [[] for _ in prompts]
        self._stopped = [False] * len(prompts)
        self._done = [False] * len(prompts)
        self._prompts = [tuple(prompt) for prompt in prompts]

    def _pad_prompts(self, prompts: Sequence[Sequence[int]]) -> None:
        # Padding is on the left, so that all prompts end in the same column.
        torch = self._torch
        longest = max(map(len, prompts))
        ids = [[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        self._input = torch.tensor(ids, device=self._device)
        self._mask = torch.tensor(mask, device=self._device)
        # Attention is cheaper without a mask, and without padding there is nothing to mask.
        self._padded = min(map(len, prompts)) < longest
        self._positions = (self._mask.cumsum(-1) - 1).clamp(min=0)
        self._cache: Any = None
        self._whole = False

    def run(self, seeds: Sequence[int | None], should_stop: ShouldStop | None) -> list[Generated]:
        """Sample until every prompt has its completion."""
        chances = self._draw_uniforms(seeds)
        logits = self._compute_first_logits()
        for step in range(max(sampling.max_tokens for sampling in self._samplings)):
            chosen, logprobs = self._sample(logits, chances[self._rows, step])
            self._record_tokens(chosen.tolist(), logprobs.tolist(), should_stop)
            if all(self._done[row] for row in self._rows):
                break
            self._advance(chosen)
            logits = self._compute_logits()
        return [
            Generated(tuple(ids), tuple(logprobs), "stop" if stopped else "length")
            for ids, logprobs, stopped in zip(self._ids, self._logprobs, self._stopped, strict=True)
        ]

    def _compute_first_logits(self) -> Any:
        # Equal prompts, as in a group of rollouts, are prefilled once.
        different = list(dict.fromkeys(self._prompts))
        self._pad_prompts(different)
        logits = self._compute_logits()
        if self._whole:
            return self._compute_logits()
        if len(different) == len(self._prompts):
            return logits
        if not _supports_row_selection(self._cache):
            self._pad_prompts(self._prompts)
            return self._compute_logits()
        number = {prompt: place for place, prompt in enumerate(different)}
        places = [number[prompt] for prompt in self._prompts]
        self._cache.batch_select_indices(self._torch.tensor(places, device=self._device))
        self._mask, self._positions = self._mask[places], self._positions[places]
        return logits[places]

    def _draw_uniforms(self, seeds: Sequence[int | None]) -> Any:
        # One generator per prompt, so that its samples do not depend on the rest of the batch. On
        # the CPU, so that a seed gives the same numbers on every device.
        torch = self._torch
        drawn = torch.zeros(len(seeds), max(s.max_tokens for s in self._samplings)).double()
        for row, (seed, sampling) in enumerate(zip(seeds, self._samplings, strict=True)):
            if sampling.temperature == 0:
                continue
            generator = torch.Generator()
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed % 2**63)
            count = sampling.max_tokens
            drawn[row, :count] = torch.rand(count, generator=generator, dtype=torch.float64)
        return drawn

    def _compute_logits(self) -> Any:
        if not self._whole:
            out = self._model(
                input_ids=self._input,
                attention_mask=self._mask if self._padded else None,
                position_ids=self._positions,
                past_key_values=self._cache,
                use_cache=True,
                logits_to_keep=1,
            )
            self._cache = getattr(out, "past_key_values", None)
            # A cache of another kind, such as Mamba's: each token needs a pass over the whole text.
            self._whole = self._cache is None
            return out.logits[:, -1].float()
        torch = self._torch
        texts = [[*self._prompts[row], *self._ids[row]] for row in self._rows]
        longest = max(map(len, texts))
        # Padding is on the right, where a causal model does not attend to it.
        ids = torch.tensor(
            [text + [0] * (longest - len(text)) for text in texts], device=self._device
        )
        last = torch.tensor([len(text) - 1 for text in texts], device=self._device)
        logits = self._model(input_ids=ids, use_cache=False).logits
        return logits[torch.arange(len(texts), device=self._device), last].float()

    def _sample(self, logits: Any, chances: Any) -> tuple[Any, Any]:
        torch = self._torch
        samplings = [self._samplings[row] for row in self._rows]
        logprobs = filter_logits(logits, samplings).log_softmax(-1)
        # Inverse transform sampling in fp64: tokens of probability 0 are never drawn.
        total = logprobs.double().exp().cumsum(-1)
        whole = total[:, -1:]
        if not bool(whole.isfinite().all()):
            raise EndpointError(
                "the model returned logits that are not finite",
                hint="the weights may contain NaN, as after a training run that diverged",
                retryable=False,
            )
        point = chances.to(total.device)[:, None] * whole
        point = torch.minimum(point, torch.nextafter(whole, torch.zeros_like(whole)))
        drawn = torch.searchsorted(total, point, right=True)
        greedy = [s.temperature == 0 for s in samplings]
        chosen = drawn
        if any(greedy):
            mask = torch.tensor(greedy, device=total.device)[:, None]
            chosen = torch.where(mask, logits.argmax(-1, keepdim=True), drawn)
        return chosen[:, 0], logprobs.gather(-1, chosen)[:, 0]

    def _record_tokens(
        self, chosen: list[int], logprobs: list[float], should_stop: ShouldStop | None
    ) -> None:
        for row, token, logprob in zip(self._rows, chosen, logprobs, strict=True):
            if self._done[row]:
                continue
            sampling, ids = self._samplings[row], self._ids[row]
            ids.append(token)
            self._logprobs[row].append(logprob)
            stop = should_stop is not None and should_stop(row, ids)
            self._stopped[row] = stop or token in sampling.stop_ids
            self._done[row] = self._stopped[row] or len(ids) >= sampling.max_tokens

    def _advance(self, chosen: Any) -> None:
        torch = self._torch
        kept = [place for place, row in enumerate(self._rows) if not self._done[row]]
        if self._whole:
            self._rows = [self._rows[place] for place in kept]
            return
        mask, positions = self._mask, self._positions[:, -1:] + 1
        if len(kept) <= _SPARSE * len(self._rows) and _supports_row_selection(self._cache):
            places = torch.tensor(kept, device=self._device)
            self._cache.batch_select_indices(places)
            chosen, mask, positions = chosen[places], mask[places], positions[places]
            self._rows = [self._rows[place] for place in kept]
        self._input = chosen[:, None]
        self._mask = torch.cat([mask, mask.new_ones(len(self._rows), 1)], dim=-1)
        self._positions = positions


def _supports_row_selection(cache: Any) -> bool:
    # A hybrid layer with a recurrent state would select its keys and values, but not its state.
    return all(
        hasattr(layer, "batch_select_indices") and not hasattr(layer, "update_recurrent_state")
        for layer in cache.layers
    )


def filter_logits(logits: Any, samplings: Sequence[Sampling]) -> Any:
    """Apply temperature, top-k and top-p to logits, each row by its own settings."""
    import torch

    temperatures = [s.temperature or 1.0 for s in samplings]
    if any(each != 1.0 for each in temperatures):
        logits = logits / torch.tensor(temperatures, device=logits.device)[:, None]
    top_k = [0 if s.temperature == 0 else s.top_k for s in samplings]
    top_p = [1.0 if s.temperature == 0 else s.top_p for s in samplings]
    if not any(top_k) and min(top_p) == 1.0:
        return logits
    ordered, order = logits.sort(dim=-1, descending=True)
    if any(top_k):
        vocabulary = logits.shape[-1]
        keep = torch.tensor([k or vocabulary for k in top_k], device=logits.device)
        ranks = torch.arange(vocabulary, device=logits.device)
        ordered = ordered.masked_fill(ranks[None] >= keep[:, None], -torch.inf)
    if min(top_p) < 1.0:
        shares = ordered.softmax(-1)
        before = shares.cumsum(-1) - shares
        # The most likely token always stays, whatever the rounding of the sum before it.
        before[:, 0] = 0.0
        limit = torch.tensor([p if p < 1 else 2.0 for p in top_p], device=logits.device)
        ordered = ordered.masked_fill(before >= limit[:, None], -torch.inf)
    return torch.empty_like(logits).scatter(-1, order, ordered)
