"""What differs between two runs: settings, the text of the prompt, and the dataset."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len, set_cell_size

from assay.store import PROVENANCE, Run, RunSpec, describe_differences

from .output import Line, Styled, cut, format_field, measure_line_width, sanitize_text

# A prompt may be a book; --json has all of it.
_MAX_DIFF_LINES = 40
_MAX_SETTING_LINES = 10
_DIFF_STYLES = {"-": "red", "+": "green", "@": "dim"}


@dataclass(frozen=True)
class ConfigDifference:
    """The differences between the specifications of two runs."""

    keys: tuple[str, ...]
    """The keys in which the configurations differ."""

    settings: tuple[str, ...]
    """Lines such as `endpoint.model: 'a' -> 'b'`, without the prompt's text."""

    prompt: tuple[str, ...]
    """A unified diff of the prompt's text."""

    dataset: str | None
    """How the datasets differ; None for the same one."""

    def lines(self) -> Iterator[Line]:
        """Yield the differences as lines of a report."""
        names = [*self.keys, *(["dataset"] if self.dataset is not None else [])]
        yield format_field("differ in", ", ".join(names) or "nothing of their configurations")
        width = measure_line_width()
        for line in self.settings[:_MAX_SETTING_LINES]:
            yield f"  {cut(line, width - 2)}"
        if (more := len(self.settings) - _MAX_SETTING_LINES) > 0:
            yield f"  and {more} more settings"
        if self.dataset is not None:
            yield f"  {cut(f'dataset: {self.dataset}', width - 2)}"
        if self.prompt:
            yield "  prompt:"
        for line in self.prompt[:_MAX_DIFF_LINES]:
            # Not `cut`, which would remove the indentation of the prompt.
            text = sanitize_text(line)
            if cell_len(text) > width - 4:
                text = f"{set_cell_size(text, width - 5)}…"
            style = _DIFF_STYLES.get(line[:1])
            yield f"    {text}" if style is None else ("    ", Styled(text, style))
        if (more := len(self.prompt) - _MAX_DIFF_LINES) > 0:
            yield f"    and {more} more lines"

    def plain(self) -> dict[str, Any]:
        """Return the differences as plain values."""
        return {
            "configurations_differ_in": list(self.keys),
            "settings": list(self.settings),
            "prompt_diff": list(self.prompt),
            "dataset": self.dataset,
        }


def find_config_difference(a: Run, b: Run) -> ConfigDifference:
    """Find the differences in what the runs were started with."""
    old, new = (
        {key: value for key, value in run.spec.config.items() if key not in PROVENANCE}
        for run in (a, b)
    )
    keys = sorted(key for key in {*old, *new} if old.get(key) != new.get(key))
    diff = _diff_prompts(old.get("prompt"), new.get("prompt"))
    if diff:
        old, new = ({**config, "prompt": _omit_text(config["prompt"])} for config in (old, new))
    return ConfigDifference(
        keys=tuple(keys),
        settings=tuple(describe_differences(old, new)),
        prompt=tuple(diff),
        dataset=_describe_datasets(a.spec, b.spec),
    )


def _diff_prompts(old: Any, new: Any) -> list[str]:
    texts = [each.get("text") if isinstance(each, dict) else None for each in (old, new)]
    if not all(isinstance(text, str) for text in texts):
        return []
    before, after = (str(text).splitlines() for text in texts)
    # The first two lines name files, which the runs do not have.
    return [line.rstrip("\n") for line in difflib.unified_diff(before, after, n=2)][2:]


def _omit_text(prompt: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in prompt.items() if key != "text"}


def _describe_datasets(a: RunSpec, b: RunSpec) -> str | None:
    if a.dataset != b.dataset:
        return f"{a.dataset} -> {b.dataset}"
    fingerprints = (a.dataset_fingerprint, b.dataset_fingerprint)
    if None in fingerprints or fingerprints[0] == fingerprints[1]:
        return None
    return f"{a.dataset} has changed between the runs"
