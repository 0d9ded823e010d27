"""Bind the parameters of a user's function to the fields of a sample, by name."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args, get_origin, get_type_hints

from assay.errors import ConfigError
from assay.types import Sample

# Names that mean the same for every sample. Any other name is a field of the dataset row.
_SAMPLE_VALUES: Mapping[str, Callable[[Sample], object]] = {
    "sample": lambda sample: sample,
    "row": lambda sample: sample,
    "messages": lambda sample: sample.messages,
    "ground_truth": lambda sample: sample.ground_truth,
    "response": lambda sample: sample.response,
    "trajectory": lambda sample: sample.trajectory,
    "prompt": lambda sample: sample.prompt,
    "input": lambda sample: sample.input,
    "metadata": lambda sample: sample.metadata,
    "input_metadata": lambda sample: sample.metadata,
}


@dataclass(frozen=True)
class CallSpec:
    """The parameters of a function that are filled from a sample."""

    names: tuple[str, ...]
    optional: frozenset[str]
    samples: frozenset[str]
    """Parameters annotated as a sample, or as a list of samples, whatever their name."""

    rest: bool
    """Whether it takes every further field of the row, as `**kwargs`."""

    where: str

    def of(self, sample: Sample) -> dict[str, object]:
        """Return the arguments for a sample. Raises `ConfigError` for a missing field."""
        values: dict[str, object] = {}
        for name in self.names:
            if name in self.samples:
                values[name] = sample
            elif name in _SAMPLE_VALUES:
                values[name] = _SAMPLE_VALUES[name](sample)
            elif name in sample.input:
                values[name] = sample.input[name]
            elif name not in self.optional:
                raise ConfigError(
                    f"sample {sample.id!r} has no field {name!r}; its row has "
                    f"{sorted(sample.input)}",
                    where=self.where,
                    hint=f"use one of those names, or one of {sorted(_SAMPLE_VALUES)}",
                )
        # The named values win over row fields of the same name.
        if self.rest:
            further = sample.input.items()
            values |= {key: value for key, value in further if key not in values}
        return values

    def lists(self, samples: Sequence[Sample]) -> dict[str, object]:
        """Return the arguments for several samples at once: each parameter gets a list."""
        each = [self.of(sample) for sample in samples]
        names = dict.fromkeys(name for values in each for name in values)
        return {name: [values.get(name) for values in each] for name in names}


def read_call_spec(
    function: Callable[..., object],
    *,
    given: Collection[str] = (),
    signature: inspect.Signature | None = None,
) -> CallSpec:
    """Read the signature of `function`. Parameters in `given`, such as fixtures, are skipped."""
    where = getattr(function, "__qualname__", repr(function))
    try:
        hints = get_type_hints(function)
    except (NameError, TypeError, AttributeError):
        # Annotations may name types that are imported for type checkers only. The parameter names
        # are enough to bind most functions.
        hints = {}
    names: list[str] = []
    optional: set[str] = set()
    rest = False
    for parameter in (signature or inspect.signature(function)).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            rest = True
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ConfigError(
                f"the function takes {parameter}, which cannot be passed by name",
                where=where,
                hint="use named parameters: messages, ground_truth, sample, or a dataset field",
            )
        elif parameter.name not in given:
            names.append(parameter.name)
            if parameter.default is not parameter.empty:
                optional.add(parameter.name)
    # A list of samples is the annotation of a function that scores a whole group at once.
    samples = frozenset(
        name
        for name in names
        if (hint := hints.get(name)) is Sample
        or (get_origin(hint) is list and get_args(hint) == (Sample,))
    )
    return CallSpec(tuple(names), frozenset(optional), samples, rest, where)
