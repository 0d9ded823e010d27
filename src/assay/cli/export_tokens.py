"""Tokens for `assay export trl-sft-tokens`: as recorded, else made of the text if asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import TokenError
from assay.export import load_tokenizer
from assay.formats import find_tools
from assay.types import Sample, ToolSpec

if TYPE_CHECKING:
    from assay.train import Retokeniser


class Tokens:
    """Makes samples with tokens and a mask, and counts those whose tokens were not recorded."""

    def __init__(self, tokenizer: Path | None) -> None:
        self._retokeniser = None if tokenizer is None else _load_retokeniser(tokenizer)
        self.made = 0

    def __call__(self, sample: Sample) -> list[Sample]:
        from assay.train import tokenize_sample

        try:
            return tokenize_sample(sample)
        except TokenError:
            if self._retokeniser is None:
                raise
        tools = [ToolSpec.model_validate(tool["function"]) for tool in find_tools(sample)]
        found = self._retokeniser.samples(sample, tools=tools)
        self.made += 1
        return found

    def notes(self) -> Iterator[str]:
        """What the account says of it."""
        if self.made:
            yield f"tokens made of text, not recorded: {self.made} samples"


def _load_retokeniser(folder: Path) -> "Retokeniser":
    from assay.train import Retokeniser

    return Retokeniser(load_tokenizer(folder))
