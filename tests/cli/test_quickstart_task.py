"""The files of `assay quickstart`: where they are found, and the sums that are trained on."""

from pathlib import Path

import pytest

from assay.cli import example_files
from assay.cli.eval_file import load_eval_file
from assay.cli.quickstart_task import find_task_file
from assay.datasets import load_samples
from assay.errors import ConfigError
from assay.scorers import import_file
from make import asked, said, sample

ROOT = Path(__file__).parents[2]
task = import_file(find_task_file("train_sums.py"))


def test_a_source_tree_has_the_files_in_its_examples() -> None:
    assert find_task_file("arithmetic.py") == ROOT / "examples" / "quickstart" / "arithmetic.py"


def test_a_missing_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(example_files, "_EXAMPLE_FOLDERS", (tmp_path,))

    with pytest.raises(ConfigError, match=r"the task file train_sums\.py is not installed"):
        find_task_file("train_sums.py")


@pytest.mark.parametrize("name", ["plain", "with_tool"])
def test_each_evaluation_has_the_dataset_beside_it(name: str) -> None:
    file = load_eval_file(f"{find_task_file('arithmetic.py')}:{name}")

    assert file.dataset == ROOT / "examples" / "quickstart" / "arithmetic.jsonl"
    assert len(list(load_samples(str(file.dataset)))) == 24


def test_no_sum_is_both_asked_and_learned_from() -> None:
    sums = task.Sums(seed=3)

    held = {row["id"] for row in sums.held_out}
    learned = {row["id"] for row in sums.training}
    assert (len(held), len(learned), held & learned) == (task.HELD_OUT_SUMS, 300, set())
    assert {row["id"].partition("#")[0] for row in sums.build_demonstrations()} == learned


def test_a_seed_decides_everything() -> None:
    assert task.Sums(1).build_demonstrations() == task.Sums(1).build_demonstrations()
    assert task.Sums(1).build_demonstrations() != task.Sums(2).build_demonstrations()
    assert task.Sums(1).held_out != task.Sums(2).held_out


def test_demonstrations_say_which_of_them_are_wrong() -> None:
    rows = task.Sums().build_demonstrations()
    answers = {row["id"]: row["answer"] for row in task.Sums().training}

    for row in rows:
        said_ = row["messages"][-1]["content"]
        assert row["right"] == (said_ == answers[row["id"].partition("#")[0]])
        assert len(said_) == 2
    wrong = sum(not row["right"] for row in rows) / len(rows)
    assert len(rows) == task.DEMONSTRATIONS_PER_SUM * 300
    assert wrong == pytest.approx(task.WRONG_SHARE, abs=0.05)


@pytest.mark.parametrize(
    ("answer", "score"), [("07", 1.0), ("7", 0.0), ("07 ", 0.0), ("070", 0.0), ("", 0.0)]
)
def test_only_the_sum_itself_is_right(answer: str, score: float) -> None:
    assert task.score_fn(sample(asked("03+04="), said(answer), ground_truth="07")).score == score


def test_rows_are_read_with_their_sums() -> None:
    (first, *_) = load_samples(task.Sums().held_out)

    assert first.messages[0].text == f"{first.id}="
    assert int(first.ground_truth) == sum(map(int, first.id.split("+")))


def test_what_measures_is_what_trains(tmp_path: Path) -> None:
    drawn = task.build_eval_config(str(tmp_path), "before", sampled=True, seed=0)
    likeliest = task.build_eval_config(str(tmp_path), "before", sampled=False, seed=0)

    assert drawn.score_fn is likeliest.score_fn is task.score_fn
    assert drawn.endpoint is not None
    assert likeliest.endpoint is not None
    assert (drawn.endpoint.temperature, likeliest.endpoint.temperature) == (1.0, 0.0)
    grpo = task.build_grpo_config(str(tmp_path), tmp_path)
    assert grpo.max_tokens == drawn.endpoint.max_tokens


def test_a_training_of_one_step_is_possible(tmp_path: Path) -> None:
    assert task.build_sft_config(tmp_path, steps=1).steps == 1
