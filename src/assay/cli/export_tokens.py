"""Tokens for `assay export trl-sft-tokens`: recorded ones, else retokenized text."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import TokenError
from assay.export import load_tokenizer
from assay.formats import find_tools
from assay.types import Sample, ToolSpec

if TYPE_CHECKING:
    from assay.train import Retokenizer


class Tokens:
    """Adds tokens and a loss mask to samples, and counts those that were retokenized."""

    def __init__(self, tokenizer: Path | None) -> None:
        self._retokenizer: Retokenizer | None = None
        if tokenizer is not None:
            # Imported on demand: recorded tokens need none of the packages behind it.
            from assay import train

            self._retokenizer = train.Retokenizer(load_tokenizer(tokenizer))
        self.made = 0

    def __call__(self, sample: Sample) -> list[Sample]:
        from assay.train import tokenize_sample

        try:
            return tokenize_sample(sample)
        except TokenError:
            if self._retokenizer is None:
                raise
        tools = [ToolSpec.model_validate(tool["function"]) for tool in find_tools(sample)]
        found = self._retokenizer.samples(sample, tools=tools)
        self.made += 1
        return found

    def notes(self) -> Iterator[str]:
        """Yield the notes for the report of the export."""
        if self.made:
            yield f"{self.made} samples have no recorded tokens; their text was retokenized"
