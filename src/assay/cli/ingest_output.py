"""Samples as lines of JSON, in assay's own format or another."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay.errors import ConfigError
from assay.formats import Converted, to_atif, to_eval_record, to_vertex
from assay.types import Sample, open_private, replace_private

FORMATS = ("sample", "eval", "atif", "vertex")

LineFormatter = Callable[[Sample], str | None]
"""Returns the line of a sample, or None for a sample that cannot be written."""

_CONVERSIONS: dict[str, Callable[[Sample], Converted[dict[str, Any]]]] = {
    "eval": to_eval_record,
    "atif": to_atif,
    "vertex": to_vertex,
}


def format_sample_line(sample: Sample, form: str) -> tuple[str, int]:
    """Return a sample as one line of JSON, and the number of values the format cannot represent."""
    conversion = _CONVERSIONS.get(form)
    if conversion is None:
        return sample.to_json(), 0
    converted = conversion(sample)
    text = json.dumps(converted.value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text, len(converted.dropped)


def write_file(target: Path, samples: Iterator[Sample], output: LineFormatter) -> None:
    """Write all samples to a temporary file, then rename it: `target` is always complete."""
    unfinished = target.with_name(f"{target.name}.unfinished")
    try:
        file = open_private(unfinished)
    except OSError as error:
        raise ConfigError(
            f"the file cannot be written: {error.strerror}",
            where=str(target),
            hint="check that the folder exists and is writable",
        ) from None
    try:
        with file:
            for line in map(output, samples):
                if line is not None:
                    file.write(f"{line}\n")
        replace_private(unfinished, target)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def write_stdout(samples: Iterator[Sample], output: LineFormatter) -> None:
    """Write all samples to stdout in UTF-8, whatever its encoding."""
    for line in map(output, samples):
        if line is not None:
            # Bytes: a terminal encoding may lack characters of the samples.
            sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()
