"""Samples that are recorded as they are: each is stored, or its problem is reported."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from assay.errors import AssayError
from assay.runner import Progress, RunControl, Stop, record_samples
from assay.store import RunSpec, Store
from assay.types import EvaluateResult, Sample, Status
from make import asked, said, sample

SPEC = RunSpec(id="import", name="import", config={}, config_fingerprint="f", dataset="here")


def record(
    where: Path, samples: list[Sample], *, stop_after: int | None = None
) -> dict[str, bool | AssayError]:
    settled: dict[str, bool | AssayError] = {}
    progress, stop = Progress(), Stop()

    def settle(sample_id: str, outcome: bool | AssayError) -> None:
        settled[f"{sample_id}{'' if sample_id not in settled else ' again'}"] = outcome

    def read() -> Iterator[Sample]:
        for number, each in enumerate(samples):
            if number == stop_after:
                stop.request()
            yield each

    with Store.open(where) as store:
        run = store.start_run(SPEC) if not list(store.runs()) else store.resume_run("import", SPEC)
        control = RunControl(progress, None, stop, stops_early=False)
        asyncio.run(record_samples(run, read(), control, settle))
    assert progress.done == sum(each is True for each in settled.values())
    return settled


def build_samples(*names: str) -> list[Sample]:
    return [sample(asked("?"), said(name), id=name, index=n) for n, name in enumerate(names)]


def test_a_sample_keeps_its_status_and_has_no_score(tmp_path: Path) -> None:
    plain, scored = build_samples("plain", "scored")
    plain.status = Status.TRUNCATED
    scored.score = EvaluateResult(score=0.5)

    assert record(tmp_path / "a.db", [plain, scored]) == {"plain": True, "scored": True}

    with Store.open(tmp_path / "a.db", create=False) as store:
        first, second = store.run("import").samples()
        assert store.run("import").row().status == "completed"
    assert (first.status, first.score, first.failure) == (Status.TRUNCATED, None, None)
    assert second.reward == 0.5


def test_a_second_sample_of_an_id_and_one_that_cannot_be_written_are_reported(
    tmp_path: Path,
) -> None:
    samples = build_samples("a", "b", "a", "c")
    samples[1].metadata["odd"] = object()

    settled = record(tmp_path / "a.db", samples)

    assert isinstance(settled.pop("b"), AssayError)
    assert settled == {"a": True, "a again": False, "c": True}


def test_a_resumed_import_records_the_samples_that_are_missing(tmp_path: Path) -> None:
    names = [f"s{number:03}" for number in range(200)]

    first = record(tmp_path / "a.db", build_samples(*names), stop_after=60)
    second = record(tmp_path / "a.db", build_samples(*names))

    assert 60 <= len(first) < 200
    assert len(first) + len(second) == 200
    with Store.open(tmp_path / "a.db", create=False) as store:
        assert [each.id for each in store.run("import").samples()] == names
