"""The task of `assay quickstart --train`: nothing that is asked was learned, and half is hidden."""

from pathlib import Path

import pytest

from assay.cli.quickstart_sums import (
    DEMONSTRATIONS_PER_SUM,
    GRPO_STEPS,
    HELD_OUT_SUMS,
    WRONG_SHARE,
    Sums,
    build_grpo_config,
    build_sft_config,
    build_sums_eval_config,
    score_fn,
)
from assay.datasets import load_samples
from make import asked, said, sample


def test_no_sum_is_both_asked_and_learned_from() -> None:
    sums = Sums(seed=3)

    held = {row["id"] for row in sums.held_out()}
    learned = {row["id"] for row in sums.learned()}
    assert (len(held), len(learned), held & learned) == (HELD_OUT_SUMS, 300, set())
    assert {row["id"].partition("#")[0] for row in sums.demonstrations()} == learned


def test_a_seed_decides_everything() -> None:
    assert Sums(1).demonstrations() == Sums(1).demonstrations()
    assert Sums(1).demonstrations() != Sums(2).demonstrations()
    assert Sums(1).held_out() != Sums(2).held_out()


def test_demonstrations_say_which_of_them_are_wrong() -> None:
    rows = Sums().demonstrations()
    answers = {row["id"]: row["answer"] for row in Sums().learned()}

    for row in rows:
        said_ = row["messages"][-1]["content"]
        assert row["right"] == (said_ == answers[row["id"].partition("#")[0]])
        assert len(said_) == 2
    wrong = sum(not row["right"] for row in rows) / len(rows)
    assert len(rows) == DEMONSTRATIONS_PER_SUM * 300
    assert wrong == pytest.approx(WRONG_SHARE, abs=0.05)


@pytest.mark.parametrize(
    ("answer", "score"), [("07", 1.0), ("7", 0.0), ("07 ", 0.0), ("070", 0.0), ("", 0.0)]
)
def test_only_the_sum_itself_is_right(answer: str, score: float) -> None:
    assert score_fn(sample(asked("03+04="), said(answer), ground_truth="07")).score == score


def test_rows_are_read_with_their_sums() -> None:
    (first, *_) = load_samples(Sums().held_out())

    assert first.messages[0].text == f"{first.id}="
    assert int(first.ground_truth) == sum(map(int, first.id.split("+")))


def test_what_measures_is_what_trains(tmp_path: Path) -> None:
    drawn = build_sums_eval_config(tmp_path, "before", sampled=True, seed=0)
    likeliest = build_sums_eval_config(tmp_path, "before", sampled=False, seed=0)

    assert drawn.score_fn is likeliest.score_fn is score_fn
    assert drawn.endpoint is not None
    assert likeliest.endpoint is not None
    assert (drawn.endpoint.temperature, likeliest.endpoint.temperature) == (1.0, 0.0)
    grpo = build_grpo_config(tmp_path, tmp_path, steps=GRPO_STEPS, seed=0)
    assert grpo.max_tokens == drawn.endpoint.max_tokens


def test_a_training_of_one_step_is_possible(tmp_path: Path) -> None:
    assert build_sft_config(tmp_path, steps=1, seed=0).steps == 1
