"""The request as a whole: prompts are read, environments fitted, mistakes found before a model."""

from pathlib import Path
from typing import Any

import pytest

from assay.datasets import PromptTemplate, load_samples
from assay.environments import BasicEnvironment
from assay.errors import ConfigError, DatasetError, StoreError
from assay.store import Store
from assay.train.grpo_plan import GRPOPlan, PromptOrder, fingerprint_prompts, plan_training
from assay.train.output_folder import OutputFolder
from assay.train.training_session import TrainingSession
from assay.types import EvaluateResult, Message, Sample, Status
from lamps import PROMPTS, Lamp, lamp_config, looked_and_said, trained

SAMPLE = Sample(prompt="?", ground_truth="red")


class Optional(BasicEnvironment):
    """Needs nothing, though it could be given something."""

    def __init__(self, sample: Sample | None = None) -> None:
        assert sample is None


def plan(folder: Path, prompts: Any = PROMPTS, environment: Any = Lamp) -> GRPOPlan:
    return plan_training(lamp_config(folder), prompts, looked_and_said, environment)


def test_a_name_is_one_that_evaluations_know(tmp_path: Path) -> None:
    assert plan(tmp_path, environment="calculator").evaluation.make_environment(SAMPLE).tools

    with pytest.raises(ConfigError, match="unknown environment 'abacus'"):
        plan(tmp_path, environment="abacus")


@pytest.mark.parametrize("environment", [3, lambda sample, second: None])
def test_what_cannot_make_one_is_refused(environment: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be called|not callable"):
        plan(tmp_path, environment=environment)


def test_a_class_is_known_again_by_its_own_source_whatever_it_takes(tmp_path: Path) -> None:
    described = {
        kind.__name__: plan(tmp_path, environment=kind).describe()["environment_cls"]
        for kind in (Lamp, Optional, BasicEnvironment)
    }

    assert len(set(described.values())) == 3
    assert all(name in text for name, text in described.items())


def test_prompts_are_rows_of_any_layout_samples_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"question": "2+2", "answer": "4"}\n')

    for prompts in ([{"question": "2+2", "answer": "4"}], file, load_samples(file)):
        (drawn,) = plan(tmp_path, prompts).order.take(0, 1)
        assert drawn.sample.ground_truth == "4"


def test_the_columns_of_a_prompt_template_are_enough_for_a_row(tmp_path: Path) -> None:
    template = PromptTemplate("Add {numbers}.")
    config = lamp_config(tmp_path).model_copy(update={"prepare_messages": template})

    planned = plan_training(config, [{"numbers": "2 and 2"}], looked_and_said, Lamp)

    (drawn,) = planned.order.take(0, 1)
    assert drawn.sample.prompt == "Add 2 and 2."


def test_other_prompts_have_another_fingerprint(tmp_path: Path) -> None:
    assert plan(tmp_path).dataset_fingerprint != plan(tmp_path, PROMPTS[1:]).dataset_fingerprint


def test_bad_prompts_are_found_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the dataset of prompts is empty"):
        plan(tmp_path, [])
    with pytest.raises(DatasetError, match="no known layout"):
        plan(tmp_path, [{"x": 1}])


def test_rows_that_were_to_be_skipped_are_counted(tmp_path: Path) -> None:
    stream = load_samples([{"x": 1}, {"prompt": "?"}], on_bad_row="skip")

    assert plan(tmp_path, stream).skipped.count == 1
    assert plan(tmp_path).skipped.count == 0


def test_one_run_belongs_to_a_folder_over_a_resume(tmp_path: Path) -> None:
    first = trained(tmp_path, num_steps=1)

    session = TrainingSession(store=tmp_path / "store.db", resume=True)
    second = trained(tmp_path, num_steps=2, session=session)

    assert first.run_id == second.run_id
    with Store.open(tmp_path / "store.db") as store:
        assert [run.id for run in store.runs()] == [first.run_id]


def test_other_weights_are_not_those_that_a_reference_was_made_of(tmp_path: Path) -> None:
    trained(tmp_path, num_steps=1, beta=0.1)
    text = (tmp_path / "out" / "training.json").read_text()
    digest = text.split('"initial_weights":"')[1].split('"')[0]
    (tmp_path / "out" / "training.json").write_text(text.replace(digest, "0" * len(digest)))
    session = TrainingSession(store=tmp_path / "store.db", resume=True)

    with pytest.raises(ConfigError, match="the model is not the one that training began with"):
        trained(tmp_path, num_steps=2, beta=0.1, session=session)


def test_a_folder_that_cannot_be_made_leaves_no_run_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.train.output_folder._check_writable", lambda folder: None)
    (tmp_path / "out").write_text("")

    with pytest.raises(ConfigError, match="out: the folder cannot be written"):
        trained(tmp_path)
    with Store.open(tmp_path / "store.db") as store:
        assert store.runs() == []


def test_a_folder_that_another_training_has_leaves_no_run_behind(tmp_path: Path) -> None:
    with (
        OutputFolder(tmp_path / "out").claim(resume=False),
        pytest.raises(ConfigError, match=r"out: process \d+ on .* is training in this folder"),
    ):
        trained(tmp_path)

    with Store.open(tmp_path / "store.db") as store:
        assert store.runs() == []


def test_a_run_that_cannot_begin_leaves_its_folder_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise StoreError("the disk is full", where="store.db")

    with monkeypatch.context() as patched:
        patched.setattr(Store, "start_run", full)
        with pytest.raises(StoreError, match="the disk is full"):
            trained(tmp_path)

    assert not trained(tmp_path, num_steps=1).interrupted


def test_a_training_is_gone_on_with_by_one_process_unless_taken_over(tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    trained(tmp_path, num_steps=1)

    with OutputFolder(tmp_path / "out").claim(resume=True):
        with pytest.raises(ConfigError, match="is training in this folder"):
            trained(tmp_path, session=TrainingSession(store=store, resume=True))
        session = TrainingSession(store=store, resume=True, take_over=True)
        assert len(trained(tmp_path, session=session).steps) == 2


LETTERS = [Sample(id=name, prompt=name) for name in "abcdef"]


def ids(seed: int, position: int, count: int) -> list[str]:
    return [each.sample.id for each in PromptOrder(LETTERS, seed).take(position, count)]


def test_each_epoch_has_every_prompt_once_in_an_order_of_its_own() -> None:
    drawn = PromptOrder(LETTERS, 3).take(0, 18)

    epochs = [[each.sample.id for each in drawn if each.epoch == epoch] for epoch in range(3)]
    assert [sorted(epoch) for epoch in epochs] == [list("abcdef")] * 3
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert [each.position for each in drawn] == list(range(18))


def test_it_can_be_taken_up_at_any_place() -> None:
    assert ids(0, 0, 20)[7:12] == ids(0, 7, 5)


def test_seeds_give_different_orders() -> None:
    assert ids(0, 0, 6) != ids(1, 0, 6)


def test_more_prompts_than_there_are_come_from_the_next_epoch() -> None:
    order = PromptOrder(LETTERS[:2], 0)

    assert [each.epoch for each in order.take(0, 5)] == [0, 0, 1, 1, 2]


def row(**fields: Any) -> Sample:
    return Sample(**{"id": "1", "prompt": "?", "input": {"a": 1, "b": 2}, **fields})


@pytest.mark.parametrize(
    "other",
    [
        row(id="2"),
        row(prompt="??"),
        row(
            prompt=[Message(role="system", content="Be brief."), Message(role="user", content="?")]
        ),
        row(ground_truth="4"),
        row(input={"a": 1, "b": 3}),
        row(metadata={"split": "test"}),
    ],
    ids=["id", "prompt", "messages", "answer", "row", "metadata"],
)
def test_a_fingerprint_covers_what_a_prompt_holds(other: Sample) -> None:
    assert fingerprint_prompts([row()]) != fingerprint_prompts([other])


def test_a_fingerprint_leaves_out_earlier_results_and_the_order_of_keys() -> None:
    again = row(input={"b": 2, "a": 1}, score=EvaluateResult(score=1.0), status=Status.COMPLETED)

    assert fingerprint_prompts([row()]) == fingerprint_prompts([again])


def test_a_prompt_that_no_store_can_hold_is_refused_by_its_id() -> None:
    with pytest.raises(
        ConfigError, match=r"sample '1': the prompt cannot be recorded: .*cannot be written as JSON"
    ):
        fingerprint_prompts([row(ground_truth=object())])
