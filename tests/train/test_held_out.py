"""Evaluation during a training: what is recorded, when it stops, and what a resume keeps."""

from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.providers.in_process import LocalModel
from assay.runner import Stop, build_run_comparison, read_training
from assay.store import Store
from assay.train.grpo import GRPOResult, grpo_train
from assay.train.held_out import EvalStep, find_best, is_exhausted
from assay.train.output_folder import MetricsFile
from assay.train.training_session import (
    EvaluationFinished,
    RolloutFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.types import Sample
from lamps import (
    COLOURS,
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    numbers,
    same,
    trained,
    weights,
)

HELD_OUT = [
    {
        "id": f"held-{number}",
        "messages": [{"role": "user", "content": "lamp?"}],
        "answer": COLOURS[number % 3],
    }
    for number in range(3)
]


def evaluated(
    folder: Path,
    *,
    session: TrainingSession | None = None,
    score_fn: Any = looked_and_said,
    **fields: Any,
) -> GRPOResult:
    """A training whose held-out lamps are asked every two steps, unless `fields` has more."""
    config = lamp_config(folder, **{"num_steps": 4, "eval_every": 2, **fields})
    return grpo_train(
        config,
        PROMPTS,
        score_fn,
        Lamp,
        eval_dataset=HELD_OUT,
        model=lamp_model(config.seed),
        session=session or TrainingSession(store=folder / "store.db"),
    )


def worse_with_each_step(sample: Sample) -> float:
    """Held-out samples score less the longer the training lasts; the others as ever."""
    if not sample.id.startswith("held"):
        return looked_and_said(sample)
    return 1 / (1 + int(sample.metadata["training_step"]))


def best_after_step_1(sample: Sample) -> float:
    """Held-out samples score by the step alone; the others as ever."""
    if not sample.id.startswith("held"):
        return looked_and_said(sample)
    return 1.0 if sample.metadata["training_step"] == 1 else 0.5


def evaluation(step: int, score: float | None) -> EvalStep:
    return EvalStep(
        step=step,
        run_id=f"step-{step}",
        score=score,
        score_low=None,
        score_high=None,
        samples=1,
        judged=int(score is not None),
        failed={},
        invalid=0,
        seconds=0.0,
    )


def test_evaluations_are_runs_that_name_the_training_and_the_step(tmp_path: Path) -> None:
    events: list[TrainingEvent] = []
    session = TrainingSession(store=tmp_path / "store.db", watch=events.append)

    result = evaluated(tmp_path, session=session, eval_repeats=2)

    assert [each.step for each in result.evaluations] == [0, 2, 4]
    assert [each.samples for each in result.evaluations] == [3, 3, 3]
    finished = [event for event in events if isinstance(event, EvaluationFinished)]
    assert [event.evaluation for event in finished] == result.evaluations
    asked = [event for event in events if isinstance(event, RolloutFinished)]
    assert {event.step for event in asked if event.is_evaluation} == {0, 2, 4}
    with Store.open(tmp_path / "store.db") as store:
        runs = {row.id: row for row in store.runs()}
        assert len(runs) == 4
        for each in result.evaluations:
            row, run = runs[each.run_id], store.run(each.run_id)
            assert each.run_id == f"step-{each.step}-of-{result.run_id}"
            assert (row.status, row.totals.recorded, row.totals.mean) == (
                "completed",
                6,
                each.score,
            )
            assert row.spec.config["training_run"] == result.run_id
            assert row.spec.config["training_step"] == each.step
            versions = {
                call.weight_version
                for sample in run.samples()
                if sample.trajectory
                for call in sample.trajectory.calls
            }
            assert versions == {f"step-{each.step}"}
        first, last = (store.run(result.evaluations[at].run_id) for at in (0, -1))
        found = build_run_comparison(first, last)
        assert found is not None
        assert store.run(result.run_id[:-1]).id == result.run_id


def test_an_evaluation_changes_nothing_about_the_training(tmp_path: Path) -> None:
    alone = trained(tmp_path / "alone", num_steps=4)

    result = evaluated(tmp_path / "evaluated")

    assert numbers(result.steps) == numbers(alone.steps)
    assert same(weights(result.model), weights(alone.model))


def test_a_training_stops_when_its_evaluations_stop_improving(tmp_path: Path) -> None:
    result = evaluated(
        tmp_path, score_fn=worse_with_each_step, num_steps=6, eval_every=1, patience=2
    )

    assert (result.stopped_early, result.interrupted) == (True, False)
    assert [each.step for each in result.evaluations] == [0, 1, 2]
    assert len(result.steps) == 2
    # The best weights are those before the training: there is nothing to keep.
    assert result.best_model_path is None
    assert result.model_path is not None
    with Store.open(tmp_path / "store.db") as store:
        assert store.run(result.run_id).status == "completed"


def test_a_stopped_training_stays_stopped_and_can_be_given_more_patience(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"score_fn": worse_with_each_step, "num_steps": 6, "eval_every": 1}
    evaluated(tmp_path, patience=2, **fields)
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    again = evaluated(tmp_path, session=session, patience=2, **fields)
    assert (len(again.steps), again.stopped_early) == (2, True)
    more = evaluated(tmp_path, session=session, patience=3, **fields)
    assert (len(more.steps), [each.step for each in more.evaluations]) == (3, [0, 1, 2, 3])


def test_the_best_model_is_kept_though_the_last_one_is_worse(tmp_path: Path) -> None:
    short = trained(tmp_path / "short", num_steps=1)
    result = evaluated(
        tmp_path / "long", score_fn=best_after_step_1, num_steps=2, eval_every=1, checkpoint_every=9
    )

    best = find_best(result.evaluations)
    assert best is not None
    assert (best.step, best.score) == (1, 1.0)
    assert result.best_model_path == tmp_path / "long" / "out" / "best"
    kept = LocalModel.load(str(result.best_model_path))
    assert same(weights(kept), weights(short.model))
    assert not same(weights(kept), weights(result.model))


HELD: list[tuple[int, str]] = []
"""The held-out samples that were scored, with their steps."""


def counted(sample: Sample) -> float:
    if sample.id.startswith("held"):
        HELD.append((int(sample.metadata["training_step"]), sample.id))
    return looked_and_said(sample)


@pytest.mark.parametrize("after", [1, 4, 7], ids=["first", "second", "last"])
def test_a_resume_repeats_no_evaluation_and_forgets_none(after: int, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"concurrency": 1, "lockstep": False, "score_fn": counted}
    whole = evaluated(tmp_path / "whole", **fields)
    HELD.clear()
    stop, store = Stop(grace_s=0), tmp_path / "cut" / "store.db"

    def watch(event: TrainingEvent) -> None:
        if len(HELD) == after:
            stop.request()

    session = TrainingSession(store=store, watch=watch, stop=stop)
    cut = evaluated(tmp_path / "cut", session=session, **fields)
    before = len(HELD)
    session = TrainingSession(store=store, resume=True)
    resumed = evaluated(tmp_path / "cut", session=session, **fields)

    assert (cut.interrupted, resumed.interrupted) == (True, False)
    assert before < len(HELD)
    assert sorted(HELD) == [(step, f"held-{number}") for step in (0, 2, 4) for number in range(3)]
    assert [(each.step, each.score) for each in resumed.evaluations] == [
        (each.step, each.score) for each in whole.evaluations
    ]
    assert same(weights(resumed.model), weights(whole.model))


class Killed(BaseException):
    """As sudden as the end of a process."""


def test_a_process_killed_before_it_noted_an_evaluation_does_not_repeat_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = MetricsFile.append

    def killed(file: MetricsFile[Any], metrics: Any) -> None:
        if isinstance(metrics, EvalStep) and metrics.step == 2:
            raise Killed
        append(file, metrics)

    HELD.clear()
    with monkeypatch.context() as patched:
        patched.setattr(MetricsFile, "append", killed)
        with pytest.raises(Killed):
            evaluated(tmp_path, score_fn=counted)

    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    resumed = evaluated(tmp_path, score_fn=counted, session=session)

    assert [each.step for each in resumed.evaluations] == [0, 2, 4]
    assert len(HELD) == len(set(HELD)) == 9


def test_a_report_of_the_training_lists_its_evaluations(tmp_path: Path) -> None:
    result = evaluated(tmp_path)

    with Store.open(tmp_path / "store.db") as store:
        training = read_training(store.run(result.run_id))
        assert training is not None
        listed = [(each.step, each.run_id, each.score.mean) for each in training.evaluations]
        assert read_training(store.run(result.evaluations[0].run_id)) is None
    assert listed == [(each.step, each.run_id, each.score) for each in result.evaluations]


@pytest.mark.parametrize(
    ("scores", "patience", "exhausted"),
    [
        ([0.5, 0.4], 2, False),
        ([0.5, 0.4, 0.5], 2, True),
        ([0.5, 0.4, None, 0.4], 3, False),
        ([0.1, 0.2, 0.3], 1, False),
        ([None, None], 1, False),
        ([0.5, 0.4], None, False),
    ],
)
def test_patience_counts_the_scores_after_the_best_one(
    scores: list[float | None], patience: int | None, exhausted: bool
) -> None:
    found = [evaluation(step, score) for step, score in enumerate(scores)]

    assert is_exhausted(found, patience) is exhausted


def test_the_first_of_equal_scores_is_the_best() -> None:
    best = find_best([evaluation(0, 0.1), evaluation(1, -0.5), evaluation(2, 0.1)])

    assert best is not None
    assert best.step == 0
    assert find_best([evaluation(0, None)]) is None


@pytest.mark.parametrize(
    ("fields", "dataset", "problem"),
    [
        ({"eval_every": 2}, None, "`eval_every` has no effect without `eval_dataset`"),
        ({}, HELD_OUT, "`eval_dataset` has no effect without `eval_every`"),
        ({"eval_every": 2}, [], "`eval_dataset` is empty"),
    ],
)
def test_half_of_an_evaluation_is_refused_before_the_training(
    fields: dict[str, Any], dataset: Any, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=problem):
        grpo_train(
            lamp_config(tmp_path, **fields), PROMPTS, looked_and_said, Lamp, eval_dataset=dataset
        )


def test_another_held_out_dataset_is_refused_on_a_resume(tmp_path: Path) -> None:
    evaluated(tmp_path, num_steps=2)

    with pytest.raises(ConfigError, match="eval_dataset"):
        grpo_train(
            lamp_config(tmp_path, num_steps=4, eval_every=2),
            PROMPTS,
            looked_and_said,
            Lamp,
            eval_dataset=HELD_OUT[:2],
            model=lamp_model(),
            session=TrainingSession(store=tmp_path / "store.db", resume=True),
        )


def test_trl_evaluates_and_keeps_the_same_weights(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"score_fn": best_after_step_1, "num_steps": 2, "eval_every": 1}
    local = evaluated(tmp_path / "local", **fields)

    on_trl = evaluated(tmp_path / "trl", backend="trl", **fields)

    assert [(each.step, each.score) for each in on_trl.evaluations] == [
        (0, 0.5),
        (1, 1.0),
        (2, 0.5),
    ]
    assert local.best_model_path is not None
    assert on_trl.best_model_path is not None
    kept, other = (
        weights(LocalModel.load(str(path)))
        for path in (local.best_model_path, on_trl.best_model_path)
    )
    assert all(bool(weight.isclose(other[name], atol=1e-5).all()) for name, weight in kept.items())
    # What TRL sets while it trains is not in the model that is kept.
    for file in sorted(local.best_model_path.glob("*.json")):
        assert (on_trl.best_model_path / file.name).read_text() == file.read_text()


def test_trl_stops_early_too(tmp_path: Path) -> None:
    result = evaluated(
        tmp_path,
        score_fn=worse_with_each_step,
        num_steps=6,
        eval_every=1,
        patience=1,
        backend="trl",
    )

    assert (result.stopped_early, len(result.steps)) == (True, 1)
