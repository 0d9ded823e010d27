"""Tokens for `assay export trl-sft-tokens`: recorded ones, else retokenized text."""

from collections.abc import Iterator
from pathlib import Path

from assay.errors import TokenError
from assay.export import load_tokenizer
from assay.formats import find_tools
from assay.types import Sample, ToolSpec


class Tokens:
    """Adds tokens and a loss mask to samples, and counts those that were retokenized."""

    def __init__(self, tokenizer: Path | None) -> None:
        # Imported here and below: the training unit is heavy, and other formats do not need it.
        from assay.train import Retokenizer

        self._retokenizer = None if tokenizer is None else Retokenizer(load_tokenizer(tokenizer))
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
