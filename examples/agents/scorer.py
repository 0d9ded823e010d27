"""The scorer of the examples: the answer has to contain the expected number."""

from assay.types import Sample


def has_number(sample: Sample) -> bool:
    return str(sample.ground_truth) in sample.response
