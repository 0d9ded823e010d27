"""The seeds of a rollout: one for its environment, another one for sampling from the model."""

import hashlib

from assay.types import Sample


def derive_environment_seed(run_seed: int | None, sample: Sample, repeat: int) -> int | None:
    """Return the row's own seed (0 included) for every repeat, else one derived from the run's."""
    own = read_sample_seed(sample)
    return own if own is not None else _derive_seed(run_seed, sample, repeat)


def derive_sampling_seed(run_seed: int | None, sample: Sample, repeat: int) -> int | None:
    """Derive a different seed for each repeat from the run's seed, else from the row's."""
    return _derive_seed(read_sample_seed(sample) if run_seed is None else run_seed, sample, repeat)


def read_sample_seed(sample: Sample) -> int | None:
    """Return the `seed` of a row, or the one in its eval-protocol environment context, if any."""
    own = _parse_whole_seed(sample.input.get("seed"))
    if own is None and sample.metadata:
        own = _read_context_seed(sample.metadata)
    if own is None and "input_metadata" in sample.input:
        # Only rows of the layout with `messages` have it as their metadata.
        own = _read_context_seed(sample.input["input_metadata"])
    return own


def _read_context_seed(metadata: object) -> int | None:
    found = metadata
    for key in ("dataset_info", "environment_context", "seed"):
        found = found.get(key) if isinstance(found, dict) else None
    return _parse_whole_seed(found)


def _parse_whole_seed(value: object) -> int | None:
    # Table readers turn an integer column with missing values into floats.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _derive_seed(seed: int | None, sample: Sample, repeat: int) -> int | None:
    if seed is None:
        return None
    text = f"{seed}:{sample.id}:{repeat}"
    # 31 bits: the seed fits a signed 32-bit integer.
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) >> 1
