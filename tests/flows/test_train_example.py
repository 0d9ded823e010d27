"""The example of a training with a tool: its reward cannot be had cheaply, and it runs."""

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from assay.scorers import import_file
from assay.train import TrainingSession, grpo_train
from assay.train.retokenize import to_demonstration
from assay.types import Message, Sample, Trajectory
from make import answered, asked, called, said

EXAMPLE = Path(__file__).parents[2] / "examples" / "train" / "order_desk.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return import_file(EXAMPLE)


def rolled_out(row: dict[str, Any], *messages: Message) -> Sample:
    conversation = [asked("where is order"), *messages]
    return Sample(
        input=row, ground_truth=row["answer"], trajectory=Trajectory(messages=conversation)
    )


def test_only_the_right_place_of_an_order_that_was_looked_up_is_rewarded(
    example: ModuleType,
) -> None:
    row = example.desk(0)
    order, place = row["order"], row["answer"]
    looked = [said("", called("lookup", order=order)), answered(place)]
    other = said("", called("lookup", order=str((int(order) + 1) % 10)))

    def score(*messages: Message) -> Any:
        return example.score_fn(rolled_out(row, *messages)).score

    assert score(*looked, said(place)) == 1.0
    assert score(*looked, said("nowhere")) == 0.0
    assert score(*looked, said(" ".join(example.PLACES))) == 0.0
    assert score(said(place)) == 0.0
    assert score(other, answered("dock"), said(place)) == 0.0


def test_half_of_the_demonstrations_are_right(example: ModuleType) -> None:
    rows = list(example.demonstrations(200))
    shown = [
        rolled_out(row, *to_demonstration(Sample(messages=row["messages"])).messages[1:])
        for row in rows
    ]

    right = sum(example.score_fn(sample).score for sample in shown) / len(rows)

    assert 0.4 < right < 0.65


def test_it_trains(example: ModuleType, tmp_path: Path) -> None:
    settings = {"num_steps": 1, "output": tmp_path / "out", "prompts_per_step": 2}

    result = grpo_train(
        example.config.model_copy(update=settings),
        example.prompts,
        example.score_fn,
        example.environment,
        model=example.untrained(),
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    assert (result.steps[0].valid, result.steps[0].failed) == (16, {})
    example.report(result)
