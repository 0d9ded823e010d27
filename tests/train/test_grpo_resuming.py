"""Going on with a training: from a checkpoint, from recorded rollouts, and when it is refused."""

from pathlib import Path
from typing import Any

import pytest

from assay.environments import BasicEnvironment
from assay.errors import ConfigError, StoreError, TrainingError
from assay.providers.in_process import LocalModel
from assay.runner import Stop
from assay.store import Run, Store
from assay.train.grpo import grpo_train
from assay.train.lora import Lora
from assay.train.training_session import (
    CheckpointSaved,
    StepFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.types import Sample
from lamps import (
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    numbers,
    same,
    share_of_a,
    steps_kept,
    trained,
    weights,
)


@pytest.mark.parametrize(
    "fields",
    [{}, {"lora": Lora(rank=2), "beta": 0.1}, {"beta": 0.1, "zero_variance": "resample"}],
    ids=["plain", "lora", "reference"],
)
def test_going_on_from_a_checkpoint_is_the_same_as_never_having_stopped(
    fields: dict[str, Any], tmp_path: Path
) -> None:
    whole = trained(tmp_path / "whole", num_steps=4, **fields)

    trained(tmp_path / "cut", num_steps=2, **fields)
    session = TrainingSession(store=tmp_path / "cut" / "store.db", resume=True)
    cut = trained(tmp_path / "cut", num_steps=4, session=session, **fields)

    assert numbers(cut.steps) == numbers(whole.steps)
    assert same(weights(cut.model), weights(whole.model))


class StopAt:
    """Stops a training after so many rollouts of a step, and counts what happens."""

    def __init__(self, step: int, done: int = 0) -> None:
        self.events: list[TrainingEvent] = []
        self.stop = Stop(grace_s=0)
        self._at = (step, done)

    def __call__(self, event: TrainingEvent) -> None:
        self.events.append(event)
        if isinstance(event, StepFinished) and (event.metrics.step, 0) == self._at:
            self.stop.request()

    def session(self, folder: Path, *, resume: bool = False) -> TrainingSession:
        return TrainingSession(store=folder / "store.db", resume=resume, watch=self, stop=self.stop)


def test_a_stop_leaves_a_checkpoint_of_the_last_whole_step(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", num_steps=3)
    stopper = StopAt(step=1)

    cut = trained(tmp_path / "cut", num_steps=3, session=stopper.session(tmp_path / "cut"))

    assert cut.interrupted
    assert cut.model_path is None
    assert [each.step for each in stopper.events if isinstance(each, CheckpointSaved)] == [1]
    session = TrainingSession(store=tmp_path / "cut" / "store.db", resume=True)
    rest = trained(tmp_path / "cut", num_steps=3, session=session)
    assert not rest.interrupted
    assert numbers(rest.steps) == numbers(whole.steps)
    with Store.open(tmp_path / "cut" / "store.db") as store:
        assert store.run(rest.run_id).status == "completed"
        assert len(store.runs()) == 1
    assert steps_kept(tmp_path / "cut") == [step.model_dump() for step in rest.steps]


class Killed(BaseException):
    """As sudden as the end of a process."""


def killed(*_: object, **__: object) -> None:
    raise Killed


def test_rollouts_that_a_killed_process_recorded_are_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", num_steps=2)
    with monkeypatch.context() as patched:
        patched.setattr("assay.train.policy.Policy.update", killed)
        with pytest.raises(Killed):
            trained(tmp_path / "cut", num_steps=2)
    generated = 0
    generate = LocalModel.generate

    def counted(self: LocalModel, prompts: Any, *rest: Any, **named: Any) -> Any:
        nonlocal generated
        generated += len(prompts)
        return generate(self, prompts, *rest, **named)

    monkeypatch.setattr(LocalModel, "generate", counted)
    session = TrainingSession(store=tmp_path / "cut" / "store.db", resume=True)
    rest = trained(tmp_path / "cut", num_steps=2, session=session)

    assert [step.found for step in rest.steps] == [12, 0]
    assert numbers(rest.steps) == numbers(whole.steps)
    turns = rest.steps[1].turns
    assert turns is not None
    assert generated == pytest.approx(12 * turns)


class Judge:
    """A scorer that raises for a reason outside of its code."""

    broken: frozenset[int] = frozenset()

    def __call__(self, sample: Sample) -> float:
        if int((sample.rollout_id or "").rpartition("#")[2]) in self.broken:
            raise ConnectionError("the judge is down")
        return looked_and_said(sample)


def count_answers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one for each batch of answers that a model is asked for."""
    asked: list[int] = []
    generate = LocalModel.generate

    def counted(self: LocalModel, prompts: Any, *rest: Any, **named: Any) -> Any:
        asked.append(len(prompts))
        return generate(self, prompts, *rest, **named)

    monkeypatch.setattr(LocalModel, "generate", counted)
    return asked


@pytest.mark.parametrize("lockstep", [True, False])
def test_rollouts_whose_scorer_failed_are_scored_again_and_not_made_again(
    lockstep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, asked = Judge(), count_answers(monkeypatch)
    monkeypatch.setattr(Judge, "broken", frozenset({1, 2}))
    with monkeypatch.context() as patched:
        patched.setattr("assay.train.policy.Policy.update", killed)
        with pytest.raises(Killed):
            trained(tmp_path, num_steps=1, score_fn=judge, lockstep=lockstep)
    made = sum(asked)
    monkeypatch.setattr(Judge, "broken", frozenset())

    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    rest = trained(tmp_path, num_steps=1, score_fn=judge, lockstep=lockstep, session=session)

    assert made > 0
    assert sum(asked) == made
    assert [(step.found, step.valid) for step in rest.steps] == [(12, 12)]


def all_raise(sample: Sample) -> float:
    raise KeyError("no such column")


def test_a_repaired_scorer_judges_the_rollouts_of_a_training_without_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, asked = trained(tmp_path / "whole", num_steps=1), count_answers(monkeypatch)
    with pytest.raises(TrainingError, match="the rollouts are kept"):
        trained(tmp_path, num_steps=1, score_fn=all_raise)
    made = sum(asked)

    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    repaired = trained(tmp_path, num_steps=1, session=session)

    assert sum(asked) == made
    assert numbers(repaired.steps) == numbers(whole.steps)


def test_steps_after_the_checkpoint_do_not_stay_when_they_are_done_again(tmp_path: Path) -> None:
    def killed_in_the_fourth(event: TrainingEvent) -> None:
        if isinstance(event, StepFinished) and event.metrics.step == 4:
            raise Killed

    store = tmp_path / "store.db"
    session = TrainingSession(store=store, watch=killed_in_the_fourth)
    with pytest.raises(Killed):
        trained(tmp_path, num_steps=5, checkpoint_every=2, session=session)
    cut = steps_kept(tmp_path)
    stopped = StopAt(step=3)
    trained(
        tmp_path, num_steps=5, checkpoint_every=9, session=stopped.session(tmp_path, resume=True)
    )
    again = steps_kept(tmp_path)
    rest = trained(tmp_path, num_steps=5, session=TrainingSession(store=store, resume=True))

    assert [step["step"] for step in cut] == [1, 2, 3, 4]
    assert [step["step"] for step in again] == [1, 2, 3]
    assert again[:2] == cut[:2]
    assert again[2]["found"] == 12
    assert steps_kept(tmp_path) == [step.model_dump() for step in rest.steps]
    assert [step.step for step in rest.steps] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("backend", ["local", "trl"])
def test_a_store_that_takes_no_step_ends_the_training_and_a_checkpoint_is_kept(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_step = Run.record_step

    def full(self: Run, step: int, metrics: Any) -> None:
        if step == 2:
            raise StoreError("the disk is full", where="store.db")
        record_step(self, step, metrics)

    with monkeypatch.context() as patched:
        patched.setattr(Run, "record_step", full)
        with pytest.raises(StoreError, match="the disk is full"):
            trained(tmp_path, backend=backend, checkpoint_every=1)

    assert [step["step"] for step in steps_kept(tmp_path)] == [1]
    assert [path.name for path in (tmp_path / "out/checkpoints").iterdir()] == ["step-000001"]
    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    rest = trained(tmp_path, backend=backend, checkpoint_every=1, session=session)
    assert steps_kept(tmp_path) == [step.model_dump() for step in rest.steps]


def test_a_run_from_before_steps_were_recorded_gets_them_when_it_goes_on(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=1)
    with (
        Store.open(tmp_path / "store.db") as store,
        store._database.write_transaction() as transaction,
    ):
        transaction.execute("DELETE FROM assay_step")

    trained(
        tmp_path, num_steps=2, session=TrainingSession(store=tmp_path / "store.db", resume=True)
    )

    assert [step["step"] for step in steps_kept(tmp_path)] == [1, 2]


def test_a_training_that_is_there_is_neither_overwritten_nor_made_up(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the folder does not contain a training to resume"):
        trained(tmp_path, session=TrainingSession(store=tmp_path / "store.db", resume=True))
    trained(tmp_path, num_steps=1)

    with pytest.raises(ConfigError, match="the folder already contains a training"):
        trained(tmp_path, num_steps=1)


OTHER = [{"role": "user", "content": "which lamp?"}]


def other_prompts(**fields: Any) -> list[Any]:
    """Under the same ids, and one of them with other content."""
    return [*PROMPTS[:-1], {**PROMPTS[-1], **fields}]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"learning_rate": 1e-4},
            "the configuration differs from the one that the run was started with",
        ),
        (
            {"score_fn": share_of_a},
            "the configuration differs from the one that the run was started with",
        ),
        ({"environment": BasicEnvironment}, "the configuration differs from the one"),
        ({"prompts": PROMPTS[:4]}, "the dataset changed since the run started"),
        ({"prompts": other_prompts(answer="mauve")}, "the dataset changed since the run started"),
        ({"prompts": other_prompts(messages=OTHER)}, "the dataset changed since the run started"),
    ],
    ids=["config", "score_fn", "environment", "prompts", "answers", "messages"],
)
def test_only_the_same_training_goes_on(
    fields: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    trained(tmp_path, num_steps=1)
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match=problem):
        trained(tmp_path, num_steps=2, session=session, **fields)


def test_other_prompts_are_refused_without_advice_that_a_training_cannot_follow(
    tmp_path: Path,
) -> None:
    trained(tmp_path, num_steps=1)
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match="restore the prompts, or train in another") as refused:
        trained(tmp_path, num_steps=2, session=session, prompts=other_prompts(answer="mauve"))

    assert "allow" not in str(refused.value)


def test_a_training_does_not_go_back_to_fewer_steps(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=2)
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match="the training has 2 steps already, and num_steps is 1"):
        trained(tmp_path, num_steps=1, session=session)


def test_a_reference_that_is_not_the_first_model_is_refused(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=1, beta=0.1)
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match="not the one that training began with"):
        grpo_train(
            lamp_config(tmp_path, beta=0.1),
            PROMPTS,
            looked_and_said,
            Lamp,
            model=lamp_model(seed=7),
            session=session,
        )
