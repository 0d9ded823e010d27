"""Small evaluations: rows, endpoints that answer at once, and running in one line."""

import asyncio
from typing import Any

from assay.providers import ClientSettings
from assay.runner import EvalConfig, EvalReport, evaluate
from assay.types import Endpoint, Sample

ECHO = Endpoint(provider="mock", model="echo")
NO_RETRIES = ClientSettings(max_retries=0)


def scripted(*replies: object, **options: Any) -> Endpoint:
    return Endpoint(
        provider="mock", model="script", extra_params={"replies": list(replies), **options}
    )


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "question": f"Say {n}", "answer": f"Say {n}"} for n in range(count)]


def right(sample: Sample) -> bool:
    return bool(sample.response == sample.ground_truth)


def run(dataset: Any, config: EvalConfig, **options: Any) -> EvalReport:
    return asyncio.run(evaluate(dataset, config, **options))
