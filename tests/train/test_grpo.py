"""`grpo_train`: it learns, it is repeatable, it can be stopped and gone on with, and it counts."""

import asyncio
import json
import math
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.agents import RunContext
from assay.environments import BasicEnvironment
from assay.errors import ConfigError, MissingExtra, TrainingError
from assay.providers.in_process import LocalModel
from assay.runner import EvalConfig, evaluate
from assay.store import Store
from assay.train.grpo import grpo_train, grpo_train_async
from assay.train.grpo_config import GRPOConfig
from assay.train.lora import Lora
from assay.train.rollout_collector import STEP_KEY
from assay.train.token_spans import tokenize_sample
from assay.train.training_session import (
    CheckpointSaved,
    RolloutFinished,
    StepFinished,
    TrainingEvent,
    TrainingSession,
    TrainingStarted,
)
from assay.types import Endpoint, EvaluateResult, Message, Sample
from lamps import (
    PROMPTS,
    Lamp,
    lamp_config,
    lamp_model,
    looked_and_said,
    numbers,
    same,
    share_of_a,
    trained,
    weights,
)
from tiny_models import tiny_model
from word_models import word_model, word_tokenizer


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_model_learns_to_say_what_is_rewarded(seed: int, tmp_path: Path) -> None:
    config = GRPOConfig(
        model_name="letters",
        num_steps=24,
        output=tmp_path / "out",
        prompts_per_step=4,
        group_size=8,
        max_tokens=8,
        learning_rate=1e-2,
        seed=seed,
    )
    prompts = [{"id": str(number), "prompt": f"say a {number}"} for number in range(8)]

    result = grpo_train(
        config,
        prompts,
        share_of_a,
        BasicEnvironment,
        model=word_model([], seed=seed),
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    rewards = [reward for reward in result.rewards if reward is not None]
    assert len(rewards) == 24
    assert max(rewards[:3]) < 0.1
    assert min(rewards[-3:]) > 0.7
    norms = [step.grad_norm for step in result.steps if step.grad_norm is not None]
    assert all(math.isfinite(norm) and norm > 0 for norm in norms)


def test_the_first_ctrl_c_ends_a_training_inside_a_running_loop(tmp_path: Path) -> None:
    def interrupt(event: TrainingEvent) -> None:
        if isinstance(event, StepFinished) and event.metrics.step == 1:
            os.kill(os.getpid(), signal.SIGINT)

    async def run_cell() -> None:
        handler = signal.getsignal(signal.SIGINT)
        try:
            grpo_train(
                lamp_config(tmp_path, num_steps=200),
                PROMPTS,
                looked_and_said,
                Lamp,
                model=lamp_model(),
                session=TrainingSession(store=tmp_path / "store.db", watch=interrupt),
            )
        finally:
            assert signal.getsignal(signal.SIGINT) is handler

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cell())

    with Store.open(tmp_path / "store.db") as store:
        run = store.run()
        assert run.status == "interrupted"
        assert len({sample.metadata[STEP_KEY] for sample in run.samples()}) < 200


def _ask_policy(sample: Sample, context: RunContext) -> str:
    assert context.client is not None
    return context.client.ask(context.messages, seed=context.sampling_seed).message.text


async def _ask_policy_twice(sample: Sample, context: RunContext) -> str:
    assert context.client is not None
    await context.client.complete(context.messages, seed=1)
    reply = await context.client.complete(context.messages, seed=context.sampling_seed)
    return reply.message.text


@pytest.mark.parametrize("agent", [_ask_policy, _ask_policy_twice])
def test_a_function_that_calls_the_policy_can_be_trained(agent: Any, tmp_path: Path) -> None:
    config = GRPOConfig(
        model_name="letters",
        num_steps=2,
        output=tmp_path / "out",
        prompts_per_step=2,
        group_size=4,
        max_tokens=8,
    )

    result = grpo_train(
        config,
        [{"id": "1", "prompt": "say a"}, {"id": "2", "prompt": "say a again"}],
        share_of_a,
        agent=agent,
        model=word_model([], seed=1),
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    assert [(step.valid, step.failed) for step in result.steps] == [(8, {}), (8, {})]
    with Store.open(tmp_path / "store.db") as store:
        samples = list(store.run(result.run_id).samples())
    for sample in samples:
        assert sample.trajectory is not None
        assert sample.trajectory.calls[-1].completion_ids
        assert sample.response == sample.trajectory.messages[-1].text


def test_an_agent_with_a_tool_learns_to_use_it_over_two_turns(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=10, prompts_per_step=6, group_size=6)

    first, last = result.steps[0], result.steps[-1]
    assert first.turns is not None
    assert last.turns is not None
    assert first.turns < 1.7 < last.turns
    assert sum(step.reward or 0 for step in result.steps[:3]) / 3 < 0.35
    assert sum(step.reward or 0 for step in result.steps[-3:]) / 3 > 0.4
    for step in result.steps:
        assert (step.valid, step.invalid, step.failed) == (36, 0, {})
        assert step.importance_weight == pytest.approx(1.0, abs=1e-4)
        assert step.ratio == pytest.approx(1.0, abs=1e-6)


def test_every_trained_token_is_one_that_a_recorded_call_sampled(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=1)

    with Store.open(tmp_path / "store.db") as store:
        samples = list(store.run(result.run_id).samples())
    calls = [call for each in samples if each.trajectory for call in each.trajectory.calls]
    sampled = sum(len(call.completion_ids or ()) for call in calls)
    masked = sum(sum(part.loss_mask) for each in samples for part in tokenize_sample(each))
    assert result.steps[0].trained_tokens == sampled == masked
    assert {call.weight_version for call in calls} == {"step-0"}


def test_two_trainings_are_equal_to_the_bit(tmp_path: Path) -> None:
    one = trained(tmp_path / "one", num_steps=3)
    other = trained(tmp_path / "other", num_steps=3)

    assert numbers(one.steps) == numbers(other.steps)
    assert same(weights(one.model), weights(other.model))


def test_another_seed_is_another_training(tmp_path: Path) -> None:
    model = lamp_model()
    session = TrainingSession(store=tmp_path / "s.db")
    config = lamp_config(tmp_path, seed=5, num_steps=1)

    other = grpo_train(config, PROMPTS, looked_and_said, Lamp, model=model, session=session)

    assert numbers(other.steps) != numbers(trained(tmp_path / "one", num_steps=1).steps)


def test_an_unchanged_policy_does_not_diverge_from_its_reference(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=2, measure_kl=True)

    first, second = (step.kl for step in result.steps)
    assert first == 0.0
    assert second is not None
    assert second > 0


def some_broken(sample: Sample) -> EvaluateResult:
    """Breaks on one lamp, does not judge another."""
    if sample.id == "lamp-0":
        raise RuntimeError("the scorer broke")
    if sample.id == "lamp-1":
        return EvaluateResult(reason="cannot say")
    return EvaluateResult(score=looked_and_said(sample))


class DarkLamp(Lamp):
    """Breaks for one colour."""

    def __init__(self, sample: Sample) -> None:
        super().__init__(sample)
        if sample.id == "lamp-2":
            raise RuntimeError("no power")


def test_what_failed_or_was_not_judged_is_counted_and_not_learned_from(tmp_path: Path) -> None:
    result = trained(
        tmp_path, num_steps=1, prompts_per_step=6, score_fn=some_broken, environment=DarkLamp
    )

    step = result.steps[0]
    assert (step.rollouts, step.valid, step.invalid) == (24, 12, 4)
    assert step.failed == {"scorer": 4, "environment": 4}
    assert step.trained_rollouts == 12
    with Store.open(tmp_path / "store.db") as store:
        samples = list(store.run(result.run_id).samples())
    assert len(samples) == 24
    failed = {each.id: each.failure for each in samples if each.failure is not None}
    assert {name: str(failure.boundary) for name, failure in failed.items()} == {
        "lamp-0": "scorer",
        "lamp-2": "environment",
    }


def test_a_step_without_any_differences_leaves_the_weights_alone(tmp_path: Path) -> None:
    before = weights(lamp_model())

    result = trained(tmp_path, score_fn=lambda sample: 1.0)

    assert [step.updated for step in result.steps] == [False, False]
    assert [step.zero_variance for step in result.steps] == [1.0, 1.0]
    assert result.steps[0].loss is None
    assert same(weights(result.model), before)


def test_groups_without_differences_are_replaced_up_to_a_limit(tmp_path: Path) -> None:
    def only_red_differs(sample: Sample) -> float:
        return looked_and_said(sample) if sample.ground_truth == "red" else 0.0

    result = trained(
        tmp_path,
        num_steps=1,
        score_fn=only_red_differs,
        zero_variance="resample",
        resample_rounds=2,
    )

    step = result.steps[0]
    assert 0 < step.resampled <= 6
    assert step.groups == 3 + step.resampled
    assert step.zero_variance is not None
    assert step.trained_rollouts == 4 * round(step.groups * (1 - step.zero_variance))


def test_the_environment_has_the_name_of_the_seeds_too(tmp_path: Path) -> None:
    config, by_alias = lamp_config(tmp_path), {"environment_cls": "abacus"}

    with pytest.raises(ConfigError, match="unknown environment 'abacus'"):
        grpo_train(config, PROMPTS, None, **by_alias)  # type: ignore[arg-type]  # the alias
    with pytest.raises(ConfigError, match="both `environment` and `environment_cls` are given"):
        grpo_train(config, PROMPTS, None, "basic", **by_alias)  # type: ignore[arg-type]  # the alias


def test_the_environments_own_rewards_will_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither `score_fn` nor `environment` is set"):
        trained(tmp_path, score_fn=None, environment=None)

    result = trained(tmp_path, num_steps=1, score_fn=None)

    assert result.steps[0].invalid == 12  # a lamp gives none
    assert result.steps[0].reward is None


def test_the_store_holds_each_rollout_with_its_step_group_and_reward(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=2)

    with Store.open(tmp_path / "store.db") as store:
        run = store.run(result.run_id)
        samples = list(run.samples())
        totals = run.totals
    assert totals.recorded == totals.valid == 24
    assert {each.metadata[STEP_KEY] for each in samples} == {1, 2}
    groups = {each.group_index for each in samples}
    assert groups == set(range(6))
    assert all(sum(each.group_index == group for each in samples) == 4 for group in groups)
    assert len({each.rollout_id for each in samples}) == 24


def test_a_model_folder_is_trained_into_another_that_loads(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    config = GRPOConfig(
        model_name=str(folder),
        num_steps=1,
        output=tmp_path / "out",
        prompts_per_step=2,
        group_size=4,
        max_tokens=4,
        learning_rate=1e-3,
    )
    session = TrainingSession(store=tmp_path / "store.db")

    result = grpo_train(config, [{"prompt": "Hello?"}], lambda s: len(s.response), session=session)

    assert result.steps[0].updated
    assert result.model_path is not None
    assert same(weights(LocalModel.load(result.model_path)), weights(result.model))
    assert not same(weights(LocalModel.load(folder)), weights(result.model))


def test_the_output_has_metrics_a_curve_a_checkpoint_and_a_model(tmp_path: Path) -> None:
    result = trained(tmp_path, num_steps=2)

    lines = (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]
    assert result.curve_path.read_text().startswith("<svg")
    assert [path.name for path in (tmp_path / "out" / "checkpoints").iterdir()] == ["step-000002"]
    assert result.model_path == tmp_path / "out" / "model"
    assert not any(path.name.startswith(".") for path in (tmp_path / "out").iterdir())


def test_it_tells_whoever_watches(tmp_path: Path) -> None:
    told: list[TrainingEvent] = []
    session = TrainingSession(store=tmp_path / "store.db", watch=told.append)

    result = trained(tmp_path, num_steps=2, session=session)

    assert told[0] == TrainingStarted(result.run_id, 0, 2)
    assert [each.metrics for each in told if isinstance(each, StepFinished)] == result.steps
    assert isinstance(told[-1], CheckpointSaved)


def test_it_works_where_an_event_loop_runs_already(tmp_path: Path) -> None:
    async def inside() -> list[Any]:
        plain = trained(tmp_path / "plain", num_steps=1)
        awaited = await grpo_train_async(
            lamp_config(tmp_path, num_steps=1),
            PROMPTS,
            looked_and_said,
            Lamp,
            model=lamp_model(),
            session=TrainingSession(store=tmp_path / "store.db"),
        )
        return [numbers(plain.steps), numbers(awaited.steps)]

    plain, awaited = asyncio.run(inside())

    assert plain == awaited


def test_the_callers_random_numbers_are_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)

    trained(tmp_path, num_steps=1, lora=Lora(rank=2))

    assert torch.rand(2).tolist() == expected


def test_weights_that_became_infinite_end_the_training_before_they_are_used(
    tmp_path: Path,
) -> None:
    model = lamp_model()

    def spoil(event: TrainingEvent) -> None:
        if isinstance(event, RolloutFinished) and event.done == event.of:
            with torch.no_grad():
                model.model.lm_head.bias.fill_(math.nan)

    session = TrainingSession(store=tmp_path / "store.db", watch=spoil)

    with pytest.raises(TrainingError, match="the gradient is nan"):
        grpo_train(
            lamp_config(tmp_path, num_steps=1),
            PROMPTS,
            looked_and_said,
            Lamp,
            model=model,
            session=session,
        )

    with Store.open(tmp_path / "store.db") as store:
        assert store.run().status == "failed"


def test_there_is_nothing_to_train_on_without_prompts(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the dataset of prompts is empty"):
        trained(tmp_path, prompts=[])

    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("backend", ["local", "trl"])
def test_without_torch_it_says_what_to_install(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtra, match=r"`torch`\n  hint: pip install 'assay-eval\[train\]'"):
        grpo_train(lamp_config(tmp_path, backend=backend), PROMPTS, looked_and_said, Lamp)

    assert not (tmp_path / "out").exists()


def test_the_local_loop_is_not_done_by_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")

    with pytest.raises(ConfigError, match=r"2 processes: only the TRL backend .*\n.*'trl'"):
        trained(tmp_path)

    assert not (tmp_path / "out").exists()


def mamba_model(words: list[str]) -> LocalModel:
    """A model whose memory is not one of keys and values."""
    from transformers import MambaConfig, MambaForCausalLM

    tokenizer = word_tokenizer(words)
    config = MambaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        state_size=4,
        num_hidden_layers=1,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return LocalModel(MambaForCausalLM(config), tokenizer, threads=1)


def test_a_model_without_keys_and_values_is_trained_on_full_passes(tmp_path: Path) -> None:
    model = mamba_model(["red"])
    before = weights(model)

    result = grpo_train(
        lamp_config(tmp_path, num_steps=1),
        PROMPTS,
        lambda sample: len(sample.response),
        model=model,
        session=TrainingSession(store=tmp_path / "store.db"),
    )

    (step,) = result.steps
    assert (step.valid, step.failed) == (12, {})
    assert step.importance_weight == pytest.approx(1.0, abs=1e-4)
    assert not same(before, weights(result.model))


def always_broken(sample: Sample) -> float:
    raise RuntimeError("the scorer broke")


@pytest.mark.parametrize("backend", ["local", "trl"])
def test_a_training_whose_every_rollout_fails_stops_with_the_reason(
    backend: str, tmp_path: Path
) -> None:
    problem = r"all 12 rollouts of step 1 failed, 12 of them at the scorer: .*the scorer broke"
    with pytest.raises(TrainingError, match=problem):
        trained(tmp_path, num_steps=3, score_fn=always_broken, backend=backend)

    assert not (tmp_path / "out" / "model").exists()
    with Store.open(tmp_path / "store.db") as store:
        assert store.run().status == "failed"


def test_a_few_steps_without_any_success_do_not_end_a_training_that_had_some(
    tmp_path: Path,
) -> None:
    def broken_later(sample: Sample) -> float:
        if sample.metadata[STEP_KEY] in broken:
            raise RuntimeError("the scorer broke")
        return looked_and_said(sample)

    broken = {2, 3}
    few = trained(tmp_path / "few", num_steps=4, score_fn=broken_later)
    broken = {2, 3, 4}
    with pytest.raises(TrainingError, match="all 12 rollouts of step 4 failed"):
        trained(tmp_path / "many", num_steps=6, score_fn=broken_later)

    assert [step.valid for step in few.steps] == [12, 0, 0, 12]


def brief(sample: Sample) -> list[Message]:
    return [Message(role="system", content="Be brief."), *sample.messages]


def test_the_trained_prompt_is_the_evaluated_prompt(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path, "qwen3")
    endpoint = Endpoint(
        provider="local",
        model=str(folder),
        max_tokens=4,
        stop=("zz",),
        extra_params={"top_k": 50, "chat_template_kwargs": {"enable_thinking": False}},
    )
    rows = [{"id": "one", "prompt": "Hello?"}]
    config = GRPOConfig(
        model_name=str(folder),
        endpoint=endpoint,
        importance_cap=None,
        num_steps=1,
        prompts_per_step=1,
        group_size=2,
        output=tmp_path / "out",
    )

    trained_on = grpo_train(
        config,
        rows,
        share_of_a,
        prepare_messages=brief,
        session=TrainingSession(store=tmp_path / "store.db"),
    )
    evaluated = asyncio.run(
        evaluate(
            rows,
            EvalConfig(endpoint=endpoint, score_fn=share_of_a, prepare_messages=brief),
            store=tmp_path / "eval.db",
        )
    )

    with Store.open(tmp_path / "store.db") as store:
        (one, *_) = store.run(trained_on.run_id).samples()
    (other,) = evaluated.samples
    assert one.trajectory is not None
    assert other.trajectory is not None
    (trained_call,), (call,) = one.trajectory.calls, other.trajectory.calls
    assert trained_call.prompt_ids == call.prompt_ids
    seed = {"seed": trained_call.sampling["seed"]}
    assert trained_call.sampling == {**call.sampling, **seed}
    assert trained_call.sampling["top_k"] == 50


def test_other_prepared_messages_are_another_training(tmp_path: Path) -> None:
    words = ["Be brief."]

    def prepared(sample: Sample) -> list[Message]:
        return [Message(role="system", content=words[0]), *sample.messages]

    trained(tmp_path, num_steps=1, prepare_messages=prepared)
    words[0] = "Be long."

    with pytest.raises(ConfigError, match="the dataset changed since the run started"):
        trained(
            tmp_path,
            num_steps=2,
            prepare_messages=prepared,
            session=TrainingSession(store=tmp_path / "store.db", resume=True),
        )
