"""The example of an agent that is a shell script: a score teaches its model, a coin does not."""

import random
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from assay.scorers import import_file
from assay.types import Sample, Trajectory
from make import asked, said

EXAMPLE = Path(__file__).parents[2] / "examples" / "train" / "second_look.py"

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")


@pytest.fixture(scope="module")
def example() -> ModuleType:
    return import_file(EXAMPLE)


def test_only_the_largest_digit_is_rewarded(example: ModuleType) -> None:
    row = example.build_row("381")

    def score(text: str) -> float:
        messages = [asked("381>"), said("3"), asked("?"), said(text)]
        sample = Sample(ground_truth=row["answer"], trajectory=Trajectory(messages=messages))
        return float(example.score_fn(sample).score)

    assert score("8") == 1.0
    assert [score(text) for text in ("3", "", "381", "88")] == [0.0] * 4


def test_the_coin_does_not_depend_on_the_answer(example: ModuleType) -> None:
    def flip(number: int, text: str) -> float:
        trajectory = Trajectory(messages=[asked("381>"), said(text)])
        rollout = Sample(rollout_id=f"{number}", ground_truth="8", trajectory=trajectory)
        return float(example.flip_coin(rollout).score)

    scores = [flip(number, "8") for number in range(200)]

    assert scores == [flip(number, random.choice("123")) for number in range(200)]
    assert 0.4 < sum(scores) / len(scores) < 0.6


def test_demonstrations_are_wrong_in_one_way_and_leave_out_what_is_held_out(
    example: ModuleType,
) -> None:
    shown = list(example.build_demonstrations(example.prompts))

    answers = [(row["id"][:3], row["messages"][-1]["content"]) for row in shown]
    assert all(text in (max(digits), digits[0]) for digits, text in answers)
    assert not {row["id"] for row in example.held_out} & {digits for digits, _ in answers}


def test_a_model_behind_the_script_learns_from_the_score_and_not_from_a_coin(
    example: ModuleType, tmp_path: Path
) -> None:
    example.train_on_demonstrations(tmp_path / "sft")
    start = tmp_path / "sft" / "model"
    for name, score in (("grpo", example.score_fn), ("control", example.flip_coin)):
        result = example.train_on_scores(start, tmp_path / name, score, steps=14)
        assert all((step.valid, step.failed) == (36, {}) for step in result.steps)

    before, after, control = (
        example.measure(path, tmp_path / "store.db", questions=60).mean
        for path in (start, tmp_path / "grpo" / "model", tmp_path / "control" / "model")
    )

    assert before < 0.6
    assert after > before + 0.15
    assert control < before + 0.1
