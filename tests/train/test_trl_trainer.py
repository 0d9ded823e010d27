"""What this package relies on in TRL. When one of these fails, TRL has changed its hook."""

import inspect
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import trl
from trl.generation.vllm_generation import VLLMGeneration

from assay.errors import TrainingError
from assay.train.policy import Policy
from assay.train.rollout_collector import StepInterrupted
from assay.train.trl_learner import check_prompts
from assay.train.trl_processes import ProcessRank
from assay.train.trl_trainer import make_trainer
from lamps import lamp_config, lamp_model

KEYS = {"prompt_ids", "completion_ids", "logprobs"}


def test_the_installed_trl_is_one_that_this_was_made_for() -> None:
    major, minor = map(int, version("trl").split(".")[:2])

    assert (1, 16) <= (major, minor) < (2, 0)


def trainer_asking(rollout: Any, folder: Path, **fields: Any) -> Any:
    config = lamp_config(folder, backend="trl", **fields)
    return make_trainer(config, Policy(lamp_model(), config), rollout, folder=folder)


def test_trl_asks_once_a_step_with_each_prompt_repeated_in_a_row(tmp_path: Path) -> None:
    asked: list[tuple[Any, ...]] = []

    def rollout(*given: Any) -> dict[str, Any]:
        asked.append(given)
        raise StepInterrupted

    trainer = trainer_asking(rollout, tmp_path)

    with pytest.raises(StepInterrupted):
        trainer.train()
    prompts, given = asked[0]
    assert prompts == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    assert given is trainer
    assert len(asked) == 1


@pytest.mark.parametrize("missing", sorted(KEYS))
def test_trl_wants_these_keys(missing: str, tmp_path: Path) -> None:
    def rollout(prompts: list[str], _: Any) -> dict[str, Any]:
        return {key: [[1]] * len(prompts) for key in KEYS - {missing}}

    with pytest.raises(ValueError, match=f"must return keys.*{missing}"):
        trainer_asking(rollout, tmp_path).train()


def test_trl_masks_what_env_mask_says_and_hands_other_fields_to_the_reward(tmp_path: Path) -> None:
    def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
        every = range(len(prompts))
        return {
            "prompt_ids": [[1] for _ in every],
            "completion_ids": [[2, 3, 4] for _ in every],
            "logprobs": [[-0.5, 0.0, -0.5] for _ in every],
            "env_mask": [[1, 0, 1] for _ in every],
            "reward": [None if number == 1 else float(number == 0) for number in every],
        }

    trainer = trainer_asking(rollout, tmp_path)
    trainer.model.train()
    inputs = [{"prompt": "0"} for _ in range(12)]

    batch = super(type(trainer), trainer)._generate_and_score_completions(inputs)

    assert batch["tool_mask"].tolist() == [[1, 0, 1]] * 12
    assert int(batch["num_items_in_batch"]) == 24
    assert batch["sampling_per_token_logps"].tolist() == [[-0.5, 0.0, -0.5]] * 12
    # None is no reward: not in the mean of its group, and no advantage either way.
    assert batch["advantages"][:4].tolist() == pytest.approx([1.1545, 0.0, -0.5773, -0.5773], 1e-3)


def test_a_trl_that_repeats_prompts_otherwise_is_noticed(tmp_path: Path) -> None:
    config = lamp_config(tmp_path, backend="trl")
    second = [*["3"] * 4, *["4"] * 4, *["5"] * 4]

    check_prompts(second, 2, config, ProcessRank(0, 1))
    check_prompts(second[6:], 2, config, ProcessRank(1, 2))
    with pytest.raises(TrainingError, match=r"requests the prompts \['3', '4'\].*at step 2"):
        check_prompts(["3", "4"], 2, config, ProcessRank(0, 1))


def test_the_hook_is_still_called_experimental(tmp_path: Path) -> None:
    """The day that TRL no longer warns, the guard against its notice can go."""
    config = lamp_config(tmp_path, backend="trl")
    policy = Policy(lamp_model(), config)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_trainer(config, policy, lambda *_: {}, folder=tmp_path)

    source = inspect.getsource(trl.GRPOTrainer.__init__)
    assert "You are using 'rollout_func', which is an experimental feature" in source


def test_nothing_is_written_or_sent_by_making_a_trainer(tmp_path: Path) -> None:
    trainer = trainer_asking(lambda *_: {}, tmp_path)

    assert list(tmp_path.iterdir()) == []
    assert trainer.args.report_to == []
    assert not trainer.args.push_to_hub


def test_vllm_is_asked_as_trl_asks_it() -> None:
    asked = inspect.signature(VLLMGeneration.generate).parameters

    assert {"prompts", "images", "num_generations"} <= set(asked)
