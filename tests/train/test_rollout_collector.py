"""Collecting a step's rollouts where it differs from an evaluation: waves, epochs, a stop."""

from pathlib import Path
from typing import Any

import pytest

from assay.agents import Limits
from assay.environments import Step
from assay.providers.in_process import LocalModel
from assay.runner import Stop
from assay.store import Store
from assay.train.grpo import grpo_train
from assay.train.training_session import RolloutFinished, TrainingEvent, TrainingSession
from assay.types import EvaluateResult, Message, Sample, Status
from lamps import (
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    share_of_a,
    trained,
)


def recorded(folder: Path) -> list[Sample]:
    with Store.open(folder / "store.db") as store:
        return list(store.run().samples())


def test_a_prompt_that_comes_again_is_rolled_out_anew(tmp_path: Path) -> None:
    one = [{"id": "only", "prompt": "lamp?", "answer": "red"}]

    trained(tmp_path, num_steps=2, prompts=one, prompts_per_step=1)

    samples = recorded(tmp_path)
    assert [each.rollout_id for each in samples] == [f"only#{number}" for number in range(8)]
    assert {each.group_index for each in samples} == {0, 1}
    said = [[message.text for message in each.messages] for each in samples]
    assert said[:4] != said[4:]


def test_few_at_a_time_are_no_other_rollouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 0
    generate = LocalModel.generate

    def noted(self: LocalModel, prompts: Any, *rest: Any, **named: Any) -> Any:
        nonlocal largest
        largest = max(largest, len(prompts))
        return generate(self, prompts, *rest, **named)

    monkeypatch.setattr(LocalModel, "generate", noted)
    result = trained(tmp_path, num_steps=1, concurrency=5)

    assert result.steps[0].valid == 12
    assert largest == 5


def test_without_lockstep_each_rollout_is_whole_all_the_same(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=1, lockstep=False)

    assert result.steps[0].valid == 12
    assert result.steps[0].importance_weight == pytest.approx(1.0, abs=1e-4)


def test_a_prompt_that_was_rolled_out_before_begins_anew(tmp_path: Path) -> None:
    before = Sample(
        id="old",
        prompt=[Message(role="user", content="lamp?")],
        ground_truth="red",
        score=EvaluateResult(score=1.0),
        tokens=[1, 2],
        loss_mask=[0.0, 1.0],
        status=Status.COMPLETED,
    )

    result = trained(tmp_path, num_steps=1, prompts=[before], prompts_per_step=1)

    assert result.steps[0].rollouts == 4
    assert all(each.trajectory is not None for each in recorded(tmp_path))
    assert before.score == EvaluateResult(score=1.0)


class NeverAgain(Lamp):
    """Asks for the training's end when it is first looked at, and then never answers."""

    stop: Stop

    async def step(self, action: Message) -> Step:
        import asyncio

        self.stop.request()
        self.stop.request()
        await asyncio.Event().wait()
        raise AssertionError("it was waited for")


def test_a_stop_in_the_middle_of_a_step_ends_it_and_nothing_is_learned(tmp_path: Path) -> None:
    NeverAgain.stop = Stop(grace_s=0)
    session = TrainingSession(store=tmp_path / "store.db", stop=NeverAgain.stop)

    result = trained(tmp_path, num_steps=2, environment=NeverAgain, session=session)

    assert result.interrupted
    assert result.steps == []
    assert recorded(tmp_path) == []


def test_each_recorded_rollout_is_told_of(tmp_path: Path) -> None:
    told: list[TrainingEvent] = []
    session = TrainingSession(store=tmp_path / "store.db", watch=told.append)

    trained(tmp_path, num_steps=1, session=session, score_fn=looked_and_said)

    rolled = [event for event in told if isinstance(event, RolloutFinished)]
    assert [event.done for event in rolled] == list(range(1, 13))
    assert {(event.step, event.of) for event in rolled} == {(1, 12)}


def test_a_rollout_that_no_file_can_hold_is_not_learned_from(tmp_path: Path) -> None:
    def score(sample: Sample) -> float:
        if str(sample.rollout_id).endswith("#0"):
            sample.metadata["handle"] = object()
        return looked_and_said(sample)

    (step,) = trained(tmp_path, num_steps=1, score_fn=score).steps

    assert step.failed == {"scorer": 3}
    assert step.valid == 9


class Chatty(Lamp):
    """Always has more to say."""

    async def step(self, action: Message) -> Step:
        return Step(replies=(Message(role="user", content="lamp " * 20),))


def test_a_rollout_that_fills_the_context_is_truncated_and_learned_from(tmp_path: Path) -> None:
    model = lamp_model()
    model.model.config.max_position_embeddings = 60
    config = lamp_config(tmp_path, num_steps=1, limits=Limits(max_turns=9))
    session = TrainingSession(store=tmp_path / "store.db")

    result = grpo_train(config, PROMPTS, share_of_a, Chatty, model=model, session=session)

    (step,) = result.steps
    assert (step.valid, step.failed, step.truncated) == (12, {}, 1.0)
    assert step.trained_rollouts == 12
    samples = recorded(tmp_path)
    assert {each.status for each in samples} == {Status.TRUNCATED}
    ends = {each.trajectory.termination_reason for each in samples if each.trajectory}
    assert ends == {"context"}


def test_the_members_of_a_group_play_the_same_task_and_are_sampled_apart(tmp_path: Path) -> None:
    prompts = [PROMPTS[0], {**PROMPTS[1], "seed": 3}]

    trained(tmp_path, num_steps=2, prompts=prompts, prompts_per_step=2)

    seeds: dict[tuple[str, int | None], set[int]] = {}
    sampled = []
    for each in recorded(tmp_path):
        assert each.trajectory is not None
        seeds.setdefault((each.id, each.group_index), set()).add(each.trajectory.session["seed"])
        sampled.append(each.trajectory.calls[0].sampling["seed"])
    assert len(seeds) == 4
    assert all(len(of_group) == 1 for of_group in seeds.values())
    assert {seed for (name, _), of in seeds.items() if name == "lamp-1" for seed in of} == {3}
    # A row without a seed of its own plays another task in the next epoch.
    assert len({seed for (name, _), of in seeds.items() if name == "lamp-0" for seed in of}) == 2
    assert len(set(sampled)) == len(sampled) == 16
