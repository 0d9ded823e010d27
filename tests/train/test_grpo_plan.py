"""The request as a whole: prompts are read, environments fitted, mistakes found before a model."""

from pathlib import Path
from typing import Any

import pytest

from assay.datasets import load_samples
from assay.environments import BasicEnvironment
from assay.errors import ConfigError, DatasetError
from assay.train.grpo_plan import GRPOPlan, plan_training
from assay.types import Sample
from lamps import PROMPTS, Lamp, lamp_config, looked_and_said

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
