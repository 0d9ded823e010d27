"""The length of samples in tokens: as recorded, or counted by a tokenizer."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, MissingExtra, WireError
from assay.formats import find_tools, flatten_to_text, get_prompt_messages, to_huggingface
from assay.types import Sample

UNKNOWN = "length unknown"

TokenCounter = Callable[[Sample, bool], int | None]
"""Counts the tokens of a sample, or of its prompt alone; None when unknown."""


@dataclass(frozen=True)
class Lengths:
    """A limit on the length, with the function that counts tokens."""

    limit: int
    count: TokenCounter
    source: str
    """The origin of the counts, for the report."""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(f"limit={self.limit} is less than 1", where="Lengths")

    @classmethod
    def from_usage(cls, limit: int) -> "Lengths":
        """Count by the usage that the model calls recorded."""
        return cls(limit, count_recorded_tokens, "as the model calls recorded them")

    @classmethod
    def from_tokenizer(cls, limit: int, folder: Path) -> "Lengths":
        """Count by a tokenizer and its chat template, from a folder."""
        tokenizer = load_tokenizer(folder)

        def count(sample: Sample, prompt_only: bool) -> int | None:
            messages = get_prompt_messages(sample) if prompt_only else sample.messages
            wire = to_huggingface(flatten_to_text(messages)).value
            try:
                ids = tokenizer.apply_chat_template(
                    wire, tools=find_tools(sample) or None, tokenize=True, return_dict=False
                )
            except Exception as error:  # templates raise anything; the problem is this conversation
                raise WireError(
                    f"the chat template rejects the messages: {type(error).__name__}",
                    where="messages",
                ) from error
            return len(ids)

        return cls(limit, count, f"counted by the tokenizer in {folder}")

    def find_length_problem(self, sample: Sample, *, prompt_only: bool = False) -> str | None:
        """Return the reason why a sample is too long, or of unknown length; else None."""
        length = self.count(sample, prompt_only)
        if length is None:
            return UNKNOWN
        return f"longer than {self.limit} tokens" if length > self.limit else None


def count_recorded_tokens(sample: Sample, prompt_only: bool) -> int | None:
    """Return the recorded length: of the longest call, or of the prompt of the first one."""
    if sample.tokens and not prompt_only:
        return len(sample.tokens)
    lengths: list[int | None] = []
    for call in sample.trajectory.calls if sample.trajectory is not None else []:
        # Requests for a title or a summary are not the conversation.
        if call.error is not None or call.purpose != "turn":
            continue
        usage = call.usage
        prompt = None if usage is None else usage.input_tokens
        prompt = prompt if call.prompt_ids is None else len(call.prompt_ids)
        if prompt_only:
            return prompt
        completion = None if usage is None else usage.output_tokens
        completion = completion if call.completion_ids is None else len(call.completion_ids)
        lengths.append(None if prompt is None or completion is None else prompt + completion)
    # One unknown call may be the longest.
    known = [length for length in lengths if length is not None]
    return max(known) if known and len(known) == len(lengths) else None


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer with a chat template from a folder. Raises `ConfigError` on failure."""
    if not folder.is_dir():
        raise ConfigError("the folder does not exist", where=f"--tokenizer {folder}")
    try:
        from transformers import AutoTokenizer
    except ImportError:
        raise MissingExtra.build("train", by="--tokenizer", package="transformers") from None
    try:
        # Never fetch files, and never run code that a model folder ships.
        tokenizer = AutoTokenizer.from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, KeyError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ConfigError(
            f"the tokenizer cannot be loaded: {reason}", where=f"--tokenizer {folder}"
        ) from None
    if not tokenizer.chat_template:
        raise ConfigError("the tokenizer has no chat template", where=f"--tokenizer {folder}")
    return tokenizer
