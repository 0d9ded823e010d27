"""Training examples from samples, with counts of excluded ones; their batches and their loss."""

import copy
import hashlib
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.datasets import SampleStream
from assay.errors import ConfigError, TokenError, WireError
from assay.formats import find_tools
from assay.types import Sample, Status, ToolSpec, reaches_threshold, stable_id

from .chat_template import ChatTokenizer
from .retokenize import Retokenizer, to_demonstration
from .sft_config import SFTConfig
from .token_spans import check_tokens, token_source, tokenize_sample

if TYPE_CHECKING:
    from torch import Tensor

_FAILED_STATUSES = (Status.FAILED, Status.ABORTED)


@dataclass(frozen=True)
class Example:
    """One training sequence. Compact, since all of them are kept in memory."""

    tokens: "array[int]"
    mask: bytes
    prompt: str
    """A digest of the prompt: samples of one prompt are held out together."""

    @property
    def trained(self) -> int:
        """How many of the tokens count."""
        return sum(self.mask)


@dataclass
class Examples:
    """The training and held-out examples, and the counts of excluded samples."""

    train: list[Example] = field(default_factory=list)
    held_out: list[Example] = field(default_factory=list)
    samples: int = 0
    """Samples that were read."""

    left_out: Counter[str] = field(default_factory=Counter)
    """The number of excluded samples, by reason."""

    retokenized: int = 0
    """Sequences whose tokens were made from text."""

    untold: int = 0
    """Samples that call tools without a recorded tool specification."""

    def fingerprint(self) -> str:
        """Return a digest of all tokens and masks in order."""
        digest = hashlib.blake2b(digest_size=16)
        for part in (self.train, self.held_out):
            for example in part:
                digest.update(example.tokens.tobytes() + b"|" + example.mask + b";")
            digest.update(b"#")
        return digest.hexdigest()


def read_examples(
    stream: SampleStream, config: SFTConfig, tokenizer: ChatTokenizer, *, vocabulary: int
) -> Examples:
    """Read all examples. Raises `ConfigError` if there are none to train on."""
    # Rollouts of one sample share its id, which would otherwise count as a duplicate.
    stream = stream.with_repeats()
    reader = _ExampleReader(config, tokenizer, vocabulary)
    found = [example for sample in stream for example in reader.examples(sample)]
    read = reader.read
    if stream.skipped.count:
        read.left_out["row that cannot be read"] += stream.skipped.count
    # Held out by a hash of the content, so that the order of the rows does not matter.
    prompts = sorted(
        {example.prompt for example in found},
        key=lambda prompt: stable_id([config.seed, prompt]),
    )
    count = ceil(config.held_out * len(prompts))
    if count and count == len(prompts):
        raise ConfigError(
            f"held_out={config.held_out:g} leaves none of {count} prompts to learn from",
            where="sft_train()",
        )
    held = set(prompts[:count])
    for example in found:
        (read.held_out if example.prompt in held else read.train).append(example)
    if not read.train:
        reasons = ", ".join(f"{count} {reason}" for reason, count in read.left_out.items())
        raise ConfigError(
            f"of {read.samples} samples, none is left to learn from",
            where="sft_train()",
            hint=f"left out: {reasons}" if reasons else "the dataset is empty",
        )
    return read


class _ExampleReader:
    """Converts samples to examples and counts the excluded ones."""

    def __init__(self, config: SFTConfig, tokenizer: ChatTokenizer, vocabulary: int) -> None:
        self._config = config
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._retokenizer: Retokenizer | None = None
        self.read = Examples()

    def examples(self, sample: Sample) -> Iterator[Example]:
        self.read.samples += 1
        if reason := self._find_exclusion(sample):
            self.read.left_out[reason] += 1
            return
        try:
            parts = self._add_tokens(sample)
            for part in parts:
                self._check_vocabulary(part)
        except TokenError:
            if not self._config.skip_unusable:
                raise
            self.read.left_out["without usable tokens"] += 1
            return
        prompt = stable_id([message.to_dict() for message in Sample(prompt=sample.prompt).messages])
        for part in parts:
            if len(part.tokens) > self._config.max_length:
                self.read.left_out["longer than max_length"] += 1
            elif not any(part.loss_mask):
                self.read.left_out["without a token that counts"] += 1
            else:
                self.read.retokenized += token_source(part) == "retokenized"
                mask = bytes(map(int, part.loss_mask))
                yield Example(array("i", part.tokens), mask, prompt)

    def _find_exclusion(self, sample: Sample) -> str | None:
        least = self._config.min_score
        if sample.failure is not None or sample.status in _FAILED_STATUSES:
            return "failed"
        if sample.trajectory is None and sample.input.get("label") is False:
            return "labelled as bad"
        if least is not None:
            if sample.reward is None:
                return "without a score"
            if not reaches_threshold(sample.reward, least):
                return "below min_score"
        return None

    def _add_tokens(self, sample: Sample) -> list[Sample]:
        if self._config.tokens == "recorded":
            if sample.tokens:
                return [sample]
            calls = [] if sample.trajectory is None else sample.trajectory.calls
            if any(call.completion_ids is not None for call in calls):
                return tokenize_sample(sample)
        whole = to_demonstration(sample, turns=self._config.demonstrations)
        try:
            tools = [ToolSpec.model_validate(tool["function"]) for tool in find_tools(sample)]
        except WireError as error:
            raise TokenError(error.message, where=error.where, hint=error.hint) from error
        if not tools and any(message.tool_calls for message in whole.messages):
            self.read.untold += 1
        # Created on first use: data with recorded tokens needs no chat template.
        if self._retokenizer is None:
            self._retokenizer = Retokenizer(self._tokenizer)
        return self._retokenizer.samples(whole, tools=tools)

    def _check_vocabulary(self, sample: Sample) -> None:
        check_tokens(sample)
        # Checked here: the embedding would fail in the middle of the training, without a name.
        if max(sample.tokens) >= self._vocabulary:
            raise TokenError(
                f"the sample has the token id {max(sample.tokens)}, and the model's vocabulary has "
                f"{self._vocabulary} tokens",
                where=f"sample {sample.id}",
                hint="the tokens are another model's: set tokens='text' to retokenize the text",
            )


def read_template(path: Path | None) -> str | None:
    """Read the chat template from a file; None without a path."""
    try:
        return None if path is None else path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the chat template cannot be read: {error}", where=str(path)) from None


def replace_template(tokenizer: ChatTokenizer, template: str | None) -> ChatTokenizer:
    """Return a copy of the tokenizer with the template; the tokenizer itself for None."""
    if template is None:
        return tokenizer
    # A copy: the model must be saved with its own template, which inference uses.
    other = copy.copy(tokenizer)
    other.chat_template = template
    return other


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
