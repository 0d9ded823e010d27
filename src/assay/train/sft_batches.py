"""The batches of a fine-tuning, and their loss."""

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .sft_data import Example

if TYPE_CHECKING:
    from torch import Tensor


def iterate_batches(
    examples: Sequence[Example], *, seed: int, tokens: int
) -> Iterator[list[Example]]:
    """Yield batches endlessly: each epoch in its own order, which depends on the seed only."""
    epoch = 0
    while True:
        yield from iterate_epoch_batches(examples, seed=seed, epoch=epoch, tokens=tokens)
        epoch += 1


def iterate_epoch_batches(
    examples: Sequence[Example], *, seed: int, epoch: int, tokens: int
) -> Iterator[list[Example]]:
    """Yield the batches of one epoch: at most `tokens` each, or one longer example."""
    order = list(range(len(examples)))
    random.Random(f"{seed}:{epoch}").shuffle(order)
    batch: list[Example] = []
    room = tokens
    for place in order:
        example = examples[place]
        if batch and len(example.tokens) > room:
            yield batch
            batch, room = [], tokens
        batch.append(example)
        room -= len(example.tokens)
    if batch:
        yield batch


def pack_examples(batch: Sequence[Example], tokens: int) -> list[list[Example]]:
    """Split a batch into passes of at most `tokens`, padding included, or of one longer example."""
    passes: list[list[Example]] = []
    # Longest first, so that padding is known; the sort is stable, so the order is repeatable.
    for example in sorted(batch, key=lambda each: -len(each.tokens)):
        if not passes or (len(passes[-1]) + 1) * len(passes[-1][0].tokens) > tokens:
            passes.append([])
        passes[-1].append(example)
    return passes


def compute_summed_loss(model: Any, examples: Sequence[Example], device: Any) -> "Tensor":
    """Return the summed negative logprob of all tokens in the loss mask."""
    import torch

    width = len(max((example.tokens for example in examples), key=len))
    ids = torch.zeros(len(examples), width, dtype=torch.long)
    attention = torch.zeros(len(examples), width, dtype=torch.long)
    mask = torch.zeros(len(examples), width, dtype=torch.bool)
    for row, example in enumerate(examples):
        size = len(example.tokens)
        ids[row, :size] = torch.tensor(example.tokens)
        attention[row, :size] = 1
        mask[row, :size] = torch.tensor(list(example.mask), dtype=torch.bool)
    ids, attention, mask = ids.to(device), attention.to(device), mask.to(device)
    # Logits before the first token in the mask would only cost memory.
    first = min(example.mask.index(1) for example in examples)
    logits = model(
        input_ids=ids, attention_mask=attention, use_cache=False, logits_to_keep=width - first + 1
    ).logits
    return compute_masked_loss(logits, ids[:, first - 1 :], mask[:, first - 1 :])


def compute_masked_loss(logits_RTV: "Tensor", ids_RT: "Tensor", mask_RT: "Tensor") -> "Tensor":
    """Return the summed negative logprob of the masked ids, by the logits before each."""
    from torch.nn.functional import cross_entropy

    counts = mask_RT[:, 1:].bool()
    loss: Tensor = cross_entropy(
        logits_RTV[:, :-1][counts].float(), ids_RT[:, 1:][counts], reduction="sum"
    )
    return loss
