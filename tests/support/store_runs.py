"""Builders for stores: specifications, scored and failed samples, and recording in one line."""

import asyncio
from collections.abc import Iterable
from typing import Any

from assay.store import Run, RunSpec, WriterSettings, sample_key
from assay.types import Boundary, EvaluateResult, Failure, Sample, Status
from make import asked, said, sample

QUICK = WriterSettings(quiet_s=0.0005)


def spec(run_id: str = "run-1", **changes: Any) -> RunSpec:
    fields: dict[str, Any] = {
        "id": run_id,
        "name": "capitals",
        "config": {"endpoint": {"model": "m1", "temperature": 0.0}},
        "config_fingerprint": "c1",
        "dataset": "capitals.jsonl",
        "dataset_fingerprint": "d1",
        "total": 3,
    }
    return RunSpec(**{**fields, **changes})


def scored(index: int | None, score: float | None = 1.0, **fields: Any) -> Sample:
    fields = {"id": f"s{index}", "status": Status.COMPLETED, **fields}
    judged = EvaluateResult(score=score) if score is not None else EvaluateResult(reason="unclear")
    return sample(asked(f"question {index}"), said("answer"), index=index, score=judged, **fields)


def broken(index: int, message: str = "no answer", **fields: Any) -> Sample:
    failure = Failure(boundary=Boundary.ENDPOINT, kind="TimeoutError", message=message)
    fields = {"id": f"s{index}", "status": Status.FAILED, "failure": failure, **fields}
    return sample(asked(f"question {index}"), index=index, **fields)


def key_of(one: Sample, repeat: int = 0) -> str:
    return sample_key("run-1", one.id, repeat, "c1")


def record(run: Run, samples: Iterable[Sample], *, repeat: int = 0) -> list[bool | None]:
    """Record samples, failed ones as attempts, and close the writer. What each call returned."""

    async def work() -> list[bool | None]:
        async with run.writer(QUICK) as writer:

            async def one(it: Sample) -> bool | None:
                if it.failure is None:
                    return await writer.record(key_of(it, repeat), it, repeat=repeat)
                await writer.record_failure(key_of(it, repeat), it, repeat=repeat)
                return None

            return list(await asyncio.gather(*map(one, samples)))

    return asyncio.run(work())
