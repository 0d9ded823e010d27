"""The table of formats: the content of their rows, and the functions that build them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from assay.errors import ConfigError
from assay.formats import (
    SKYRL_COLUMNS,
    VERL_COLUMNS,
    Converted,
    to_atif,
    to_eval_record,
    to_fireworks_rft,
    to_openai_dpo,
    to_openai_rft,
    to_openai_sft,
    to_openenv_trace,
    to_sharegpt,
    to_skyrl,
    to_trl_kto,
    to_trl_messages,
    to_trl_preference,
    to_trl_prompt,
    to_trl_sft,
    to_trl_tokens,
    to_verl,
    to_verl_sft,
    to_vertex,
)
from assay.registry import find_plugin, list_names

from .inferred_parquet import InferredColumns
from .parquet_file import Columns
from .selection import RowContent

ExportRow = Converted[dict[str, Any]]


@dataclass(frozen=True)
class Format:
    """An output format."""

    takes: RowContent
    about: str
    write: Callable[..., ExportRow]
    """Takes a sample; for pairs the better and the worse one; for labels a sample and a label."""

    columns: Columns | InferredColumns | None = None
    """The columns, where the file may be Parquet."""

    only_parquet: bool = False
    least: int = 1
    """The fewest rows that the consumer accepts."""

    note: str | None = None
    """A note for the report of every export in this format."""

    def __post_init__(self) -> None:
        if self.takes not in get_args(RowContent):
            known = ", ".join(get_args(RowContent))
            raise ConfigError(f"the format takes {self.takes!r}, not one of {known}")

    def check_target(self, target: Path, name: str) -> None:
        """Raise `ConfigError` for a file name with the suffix of another format."""
        suffix = target.suffix.lower()
        known = [".parquet"] if self.only_parquet else [".jsonl", ".ndjson"]
        if self.columns is not None and not self.only_parquet:
            known.append(".parquet")
        if suffix not in known:
            raise ConfigError(
                f"{name} cannot be written to a file {suffix or 'without a suffix'}",
                where=f"-o {target}",
                hint=f"choose a name that ends in {', '.join(known)}",
            )


# OpenAI's fine-tuning refuses smaller files.
_OPENAI_MIN_ROWS = 10

_VERL_SFT = InferredColumns(
    exact=("messages[].tool_calls[].function.arguments", "tools[].function"),
    hint="verl renders padded keys as null: read the file with the class of `assay docs export`, "
    "or export samples with the same tools and arguments to a file of their own",
)

FORMATS: Mapping[str, Format] = {
    "trl-sft": Format("answers", "TRL SFTTrainer: prompt and completion, with tools", to_trl_sft),
    "trl-sft-messages": Format("answers", "the same as one list of messages", to_trl_messages),
    "trl-sft-tokens": Format("tokens", "TRL SFTTrainer: recorded tokens and labels", to_trl_tokens),
    "trl-grpo": Format("prompts", "TRL GRPOTrainer: prompts and ground truths", to_trl_prompt),
    "trl-preference": Format(
        "pairs", "TRL DPOTrainer: the best and worst answer", to_trl_preference
    ),
    "trl-kto": Format("labels", "TRL KTOTrainer: answers, good or bad", to_trl_kto),
    "openai-sft": Format(
        "answers", "OpenAI supervised fine-tuning", to_openai_sft, least=_OPENAI_MIN_ROWS
    ),
    "openai-dpo": Format(
        "pairs", "OpenAI preference fine-tuning", to_openai_dpo, least=_OPENAI_MIN_ROWS
    ),
    "openai-rft": Format(
        "prompts",
        "OpenAI reinforcement fine-tuning, with a grader template",
        to_openai_rft,
        least=_OPENAI_MIN_ROWS,
    ),
    "fireworks-rft": Format("prompts", "Fireworks reinforcement fine-tuning", to_fireworks_rft),
    "verl": Format(
        "prompts", "verl's RL trainers", to_verl, columns=VERL_COLUMNS, only_parquet=True
    ),
    "verl-sft": Format(
        "answers", "verl's SFT trainer", to_verl_sft, columns=_VERL_SFT, only_parquet=True
    ),
    "skyrl": Format("prompts", "SkyRL's prompts", to_skyrl, columns=SKYRL_COLUMNS),
    "sharegpt": Format("answers", "conversations of human and gpt", to_sharegpt),
    "atif": Format("samples", "ATIF 1.8, one trajectory on each line", to_atif),
    "openenv": Format(
        "answers",
        "OpenEnv's layout of training traces, which its released package does not read",
        to_openenv_trace,
        note="the openenv-core package (0.3.0) has no reader for these traces; "
        "`assay.formats.openenv_trace.from_openenv_trace` reads them",
    ),
    "vertex": Format("samples", "Vertex Gen AI evaluation", to_vertex),
    "eval": Format("samples", "evaluation records", to_eval_record),
    "sample": Format(
        "samples",
        "assay's own, which every command reads",
        lambda sample: Converted(sample.to_dict()),
    ),
}
"""The formats by their names in `assay export`."""


def find_format(name: str) -> Format:
    """Return the format of this name, which may be a plug-in's.

    Raises `ConfigError` for an unknown name, and for a plug-in that is not a `Format`.
    """
    if name in FORMATS:
        return FORMATS[name]
    plugin = find_plugin("assay.export_formats", name)
    if plugin is None:
        known = ", ".join(list_names("assay.export_formats", FORMATS))
        raise ConfigError(f"unknown format {name!r}", hint=f"the formats are {known}")
    if not isinstance(plugin.value, Format):
        kind = type(plugin.value).__name__
        raise plugin.build_error(f"the format is of type `{kind}`, not a Format")
    return plugin.value
