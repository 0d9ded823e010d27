"""What this package relies on in TRL. When one of these fails, TRL has changed its hook."""

import asyncio
import inspect
import warnings
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trl
from trl.generation.vllm_generation import VLLMGeneration
from trl.trainer import base_trainer

from assay.errors import EndpointError, TrainingError
from assay.providers.in_process import LocalClient, LocalModel, Sampling
from assay.train.policy import Policy
from assay.train.rollout_collector import StepInterrupted
from assay.train.trl_backend import check_prompts
from assay.train.trl_processes import ProcessRank
from assay.train.trl_trainer import VllmEngine, make_trainer, sample_with_vllm
from assay.types import Endpoint, Message
from lamps import lamp_config, lamp_model
from word_models import END, word_model

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


def test_nothing_is_written_or_sent_by_making_a_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    monkeypatch.setattr(base_trainer, "send_telemetry", lambda **report: sent.append(report))
    # There TRL sends none in any case.
    monkeypatch.delenv("CI", raising=False)

    trainer = trainer_asking(lambda *_: {}, tmp_path)

    assert sent == []
    assert list(tmp_path.iterdir()) == []
    assert trainer.args.report_to == []
    assert not trainer.args.push_to_hub


def test_vllm_is_asked_as_trl_asks_it() -> None:
    asked = inspect.signature(VLLMGeneration.generate).parameters

    assert {"prompts", "images", "num_generations"} <= set(asked)


class Generation:
    """Says the same to every prompt, and notes what it was asked."""

    def __init__(self, ids: list[int], logprobs: list[float | None]) -> None:
        self.asked: list[dict[str, Any]] = []
        self._ids, self._logprobs = ids, logprobs

    def generate(self, **asked: Any) -> tuple[Any, Any, Any, Any]:
        self.asked.append(asked)
        count = len(asked["prompts"])
        known = [[[logprob] for logprob in self._logprobs]] * count
        return asked["prompts"], [self._ids] * count, known, None


@pytest.fixture(scope="module")
def local() -> LocalModel:
    model = word_model(["yes"])
    model.weight_version = "step-3"
    return model


def ids_of(local: LocalModel, *words: str) -> list[int]:
    return list(local.tokenizer.convert_tokens_to_ids(list(words)))


def test_calls_go_to_vllm_and_are_recorded_with_its_tokens(local: LocalModel) -> None:
    said = ids_of(local, "yes", END)
    generation = Generation(said, [-0.25, -0.5])
    trainer = SimpleNamespace(use_vllm=True, vllm_generation=generation)
    client = LocalClient(local, Endpoint(provider="local", model="m"))

    with sample_with_vllm(trainer, local):
        reply = asyncio.run(client.complete([Message(role="user", content="well?")]))

    assert reply.message.text == "yes"
    assert reply.call.completion_ids == tuple(said)
    assert reply.call.logprobs == (-0.25, -0.5)
    assert reply.call.weight_version == "step-3"
    assert reply.call.finish_reason == "stop"
    assert generation.asked[0]["num_generations"] == 1
    assert generation.asked[0]["prompts"] == [list(reply.call.prompt_ids or ())]


def test_without_vllm_the_model_itself_answers(local: LocalModel) -> None:
    batches = local.batches

    with sample_with_vllm(SimpleNamespace(use_vllm=False), local):
        assert local.batches is batches


def test_an_answer_that_does_not_end_was_cut(local: LocalModel) -> None:
    engine = VllmEngine(Generation(ids_of(local, "yes"), [-1.0]), local)

    (made,) = engine.generate([[1, 2]], Sampling(), seeds=[None])

    assert made.finish_reason == "length"


@pytest.mark.parametrize(("words", "logprobs"), [([], []), (["yes"], [None])])
def test_tokens_without_logprobs_are_refused(
    words: list[str], logprobs: list[float | None], local: LocalModel
) -> None:
    engine = VllmEngine(Generation(ids_of(local, *words), logprobs), local)

    with pytest.raises(EndpointError, match="vLLM returned"):
        engine.generate([[1, 2]], Sampling(), seeds=[None])
