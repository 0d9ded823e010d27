"""Prompts that are computed once in a pass, for all samples that begin with them.

The rollouts of a group share their prompt, which is often most of their tokens. Its keys and values
are computed once, with their gradient, and the rest of each sample after them: the same sums in
another order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

# Sharing pays off if at most this share of the tokens, padding included, remains to be computed:
# two passes have a cost of their own.
_MAX_REMAINING_SHARE = 0.75

Span = tuple[int, int]
"""The range of positions in a sample whose logits are needed."""


@dataclass(frozen=True)
class SharedPrompts:
    """A pass in two parts. `_PT` is indexed by prompt, then token; `_RT` and `_R` by sample."""

    ids_PT: "Tensor"
    mask_PT: "Tensor"
    """0 on padding, which is on the left: the rest must follow its prompt directly."""

    padded: bool
    prompt_R: "Tensor"
    """Which prompt each sample begins with."""

    rest_RT: "Tensor"
    """The tokens after the prompt, up to the last needed position, padded on the right."""

    start_R: "Tensor"
    """How many tokens of each sample are its prompt."""

    longest: int
    """Tokens of the longest sample."""


def share_prompts(
    rows: Sequence[Sequence[int]], spans: Sequence[Span], *, device: Any
) -> SharedPrompts | None:
    """Split a pass into prompts and the rest; None where sharing does not pay off."""
    import torch

    prompts = [tuple(row[:start]) for row, (start, _) in zip(rows, spans, strict=True)]
    rest = [row[start:end] for row, (start, end) in zip(rows, spans, strict=True)]
    number = {prompt: place for place, prompt in enumerate(dict.fromkeys(prompts))}
    width, rest_width, longest = (max(map(len, each)) for each in (number, rest, rows))
    left = len(number) * width + len(rows) * rest_width
    # Without sharing, all but the last column would be computed.
    if () in number or left > _MAX_REMAINING_SHARE * len(rows) * (longest - 1):
        return None
    ids = [(0,) * (width - len(prompt)) + prompt for prompt in number]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in number]
    ends = [[*row, *[0] * (rest_width - len(row))] for row in rest]
    return SharedPrompts(
        ids_PT=torch.tensor(ids, device=device),
        mask_PT=torch.tensor(mask, device=device),
        padded=min(map(len, number)) < width,
        prompt_R=torch.tensor([number[prompt] for prompt in prompts], device=device),
        rest_RT=torch.tensor(ends, device=device),
        start_R=torch.tensor([start for start, _ in spans], device=device),
        longest=longest,
    )


def compute_logits_after(model: Any, shared: SharedPrompts) -> "Tensor | None":
    """Return the logits of the rest; None for a model that cannot continue from a cache."""
    import torch
    from transformers.cache_utils import DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

    cache = DynamicCache(config=model.config)
    # Only these layers pass gradients and can be shared: a recurrent state is updated in place, and
    # other layers quantize their values.
    known = (DynamicLayer, DynamicSlidingWindowLayer)
    if not all(type(layer) in known for layer in cache.layers):
        return None
    mask_PT = shared.mask_PT
    model(
        input_ids=shared.ids_PT,
        attention_mask=mask_PT if shared.padded else None,
        position_ids=(mask_PT.cumsum(-1) - 1).clamp(min=0),
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    if cache.get_seq_length() != mask_PT.shape[1]:
        return None  # the model did not use this cache
    cache.batch_select_indices(shared.prompt_R)
    ones_RT = torch.ones_like(shared.rest_RT)
    places_RT = shared.start_R[:, None] + ones_RT.cumsum(-1) - 1
    logits_RT: Tensor = model(
        input_ids=shared.rest_RT,
        attention_mask=torch.cat([mask_PT[shared.prompt_R], ones_RT], -1)
        if shared.padded
        else None,
        # Positions of padding may exceed their sample, but not the positions of the model.
        position_ids=places_RT.clamp(max=shared.longest - 1),
        past_key_values=cache,
        use_cache=True,
    ).logits
    return logits_RT
