"""Which prompt each rollout had, and rollouts that are kept for their scorer."""

import asyncio
from typing import Any

from assay.store import Run, Store
from assay.store.insert_rows import InsertRow, build_failure_row, build_result_row
from assay.types import Boundary, Failure, Message, Sample, Trajectory
from store_runs import QUICK, broken, key_of, record, scored, spec


def written(run: Run, *entries: tuple[Sample, str | None]) -> None:
    """Record samples with the digests of their prompts."""

    async def work() -> None:
        async with run.writer(QUICK) as writer:
            writer.submit([_entry(*each) for each in entries], lambda outcome: None)
            await writer.flush()

    asyncio.run(work())


def _entry(sample: Sample, digest: str | None) -> InsertRow:
    make = build_result_row if sample.failure is None else build_failure_row
    entry = make(key_of(sample), sample, 0)
    entry.prompt_digest = digest
    return entry


def unscored(index: int, text: str, **fields: Any) -> Sample:
    """A sample whose rollout ended, and whose scorer failed."""
    failure = Failure(boundary=Boundary.SCORER, kind="KeyError", message="no such column")
    trajectory = Trajectory(messages=[Message(role="assistant", content=text)])
    failed = broken(index, failure=failure)
    return failed.model_copy(update={"trajectory": trajectory, **fields})


def test_each_key_is_known_with_its_prompt(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (scored(0), "d0"), (scored(1), None), (unscored(2, "a"), "d2"), (broken(3), "d3"))

    prompts = run.prompts()

    assert prompts.has(key_of(scored(0)), "d0")
    assert not prompts.has(key_of(scored(0)), "d1")
    assert not prompts.has(key_of(scored(0)), None)
    assert prompts.has(key_of(scored(1)), None)
    assert prompts.has(key_of(scored(2)), "d2")
    assert not prompts.has(key_of(scored(3)), "d3")


def test_prompts_of_other_runs_are_not_mixed_in(store: Store) -> None:
    store.start_run(spec("run-0"))
    run = store.start_run(spec())
    other = store.start_run(spec("run-2"))
    written(other, (scored(0), "d0"), (unscored(1, "a"), "d1"))

    assert not run.prompts().has(key_of(scored(0)), "d0")
    assert key_of(scored(1)) not in run.read_kept_keys()
    assert run.find_kept_rollout(key_of(scored(1))) is None


def test_the_last_rollout_is_kept_whose_scorer_failed(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (unscored(0, "first"), "d0"), (unscored(0, "second"), "d0"), (broken(0), None))

    kept = run.find_kept_rollout(key_of(scored(0)))

    assert key_of(scored(0)) in run.read_kept_keys()
    assert kept is not None
    assert [message.text for message in kept.trajectory.messages] == ["second"]
    assert kept.prompt_digest == "d0"


def test_a_result_comes_before_the_attempts_that_failed(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (unscored(0, "first"), "d0"), (scored(0), "d1"))

    kept = run.find_kept_rollout(key_of(scored(0)))

    assert kept is not None
    assert kept.prompt_digest == "d1"


def test_nothing_is_kept_of_what_never_was_rolled_out(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (broken(0), "d0"), (unscored(1, "", trajectory=None), None))

    assert key_of(scored(0)) not in run.read_kept_keys()
    assert run.find_kept_rollout(key_of(scored(0))) is None
    assert run.find_kept_rollout(key_of(scored(1))) is None


def test_samples_are_read_by_their_keys_in_the_order_asked_for(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (scored(0), None), (broken(1), None), (broken(2), None), (scored(3), None))
    written(run, (scored(2), None))
    keys = [key_of(scored(number)) for number in (3, 2, 1, 9, 0)]

    found = dict(run.samples_by_key([*keys, keys[0]]))

    assert list(found) == [key for key in keys if key != key_of(scored(9))]
    assert found[keys[2]].failure is not None
    assert [found[keys[number]].failure for number in (0, 1, 4)] == [None, None, None]


def test_of_several_failed_attempts_the_last_one_is_read(store: Store) -> None:
    run = store.start_run(spec())
    for text in ("first", "second"):
        written(run, (unscored(0, text), None))

    ((_, found),) = run.samples_by_key([key_of(scored(0))])

    assert found.trajectory is not None
    assert found.trajectory.messages[0].text == "second"


def test_more_keys_than_a_page_are_all_read(store: Store) -> None:
    run, other = store.start_run(spec()), store.start_run(spec("run-2"))
    written(run, *((scored(number), None) for number in range(120)))
    keys = [key_of(scored(number)) for number in range(120)]

    assert [key for key, _ in run.samples_by_key(keys)] == keys
    assert list(other.samples_by_key(keys)) == []


def test_a_result_is_found_by_its_key_with_its_sample(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [broken(0), broken(1)])
    record(run, [scored(0)])

    done, failed = (run.find_result(key_of(each)) for each in (scored(0), broken(1)))

    assert done is not None
    assert failed is not None
    assert (done[0].score, done[1].id) == (1.0, "s0")
    assert (failed[0].boundary, failed[1].id) == ("endpoint", "s1")
    assert run.find_result("unknown") is None


def test_one_sample_is_read_with_its_attempts(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (broken(0, "first"), None), (broken(0, "second"), None), (broken(1), None))
    key = key_of(broken(0))
    first, last = (attempt.number for attempt in run.attempts(key=key))

    found = [run.find_sample(key), *(run.find_sample(key, attempt=n) for n in (first, last))]
    messages = [each.sample.failure.message for each in found if each and each.sample.failure]
    written(run, (scored(0), None))
    done = run.find_sample(key)

    assert messages == ["second", "first", "second"]
    assert done is not None
    assert (done.key, done.repeat, done.sample.failure) == (key, 0, None)
    assert run.find_sample(key, attempt=last + 100) is None
    assert run.find_sample("unknown\0") is None


def test_samples_are_read_with_their_keys(store: Store) -> None:
    run = store.start_run(spec())
    written(run, (scored(1), None), (scored(0), None), (broken(2), None))

    recorded = list(run.samples_with_keys())

    assert [(each.key, each.sample.index) for each in recorded] == [
        (key_of(scored(0)), 0),
        (key_of(scored(1)), 1),
        (key_of(broken(2)), 2),
    ]
    keys = [each.key for each in recorded]
    assert run.find_sample_ids([*keys, "other"]) == {
        each.key: (each.sample.id, 0) for each in recorded
    }


def test_rows_and_samples_belong_together_while_the_run_is_recorded(store: Store) -> None:
    run = store.start_run(spec())
    record(run, [*(scored(index) for index in range(0, 120, 2)), broken(300)])
    reading = run.results_with_samples()
    found = [next(reading)]
    record(run, [*(scored(index) for index in range(1, 120, 2)), broken(301)])

    found += reading

    assert all(row.sample_id == sample.id for row, sample in found)
    assert {row.sample_id for row, _ in found} >= {f"s{index}" for index in range(0, 120, 2)}
    assert found[-1][0].boundary == "endpoint"


def test_repeats_of_a_sample_are_found_by_any_of_them(store: Store) -> None:
    run = store.start_run(spec(repeats=3))
    record(run, [scored(0), scored(1)])
    record(run, [scored(0, 0.5)], repeat=2)
    record(run, [broken(0), broken(0)], repeat=1)

    found = [(row.repeat, row.score, row.boundary) for row in run.find_repeats(key_of(scored(0)))]

    assert found == [(0, 1.0, None), (1, None, "endpoint"), (2, 0.5, None)]
    assert [row.repeat for row in run.find_repeats(key_of(broken(0), 1))] == [0, 1, 2]
    assert run.find_repeats("unknown") == []
