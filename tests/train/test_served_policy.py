"""GRPO against a served model: it learns, old rollouts are bounded and corrected, or dropped."""

import asyncio
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest
import torch
from aiohttp import ClientSession

from assay.agents import RunContext
from assay.errors import ConfigError
from assay.providers import Reply, VersionedClient
from assay.store import Store
from assay.train.batches import RolloutGroup
from assay.train.checkpoints import Checkpoints
from assay.train.grpo import grpo_train
from assay.train.lora import Lora
from assay.train.policy import Policy
from assay.train.rollout_collector import StepRollouts
from assay.train.served_policy import (
    check_recorded_tokens,
    drop_stale_rollouts,
    find_oldest_version,
)
from assay.train.training_session import (
    RolloutFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.train.weight_updates import PolicyWeights, UploadWeights
from assay.types import Endpoint, Message, ModelCall, Sample, ToolSpec, Trajectory
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said, share_of_a
from served_models import serving
from served_training import LETTERS, served_config, train_served
from word_models import word_model


class LateUpdate:
    """Uploads weights when the rollouts of as many later steps are done as may be ahead."""

    def __init__(self, ahead: int, *, last: int) -> None:
        self._ahead = ahead
        self._last = last
        self._done: set[int] = set()
        self._finished = asyncio.Event()
        self._upload = UploadWeights()

    async def __call__(self, weights: PolicyWeights, endpoint: Endpoint) -> None:
        learned = int(weights.version.removeprefix("step-"))
        while learned and min(learned + self._ahead, self._last) not in self._done:
            self._finished.clear()
            await self._finished.wait()
        await self._upload(weights, endpoint)

    def watch(self, event: TrainingEvent) -> None:
        if isinstance(event, RolloutFinished) and event.done == event.of:
            self._done.add(event.step)
            self._finished.set()


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_a_served_model_learns_and_no_rollout_is_older_than_allowed(
    ahead: int, tmp_path: Path
) -> None:
    steps = 24 + 3 * ahead
    late = LateUpdate(ahead, last=steps)

    with serving(word_model([], seed=7)) as served:
        result = train_served(
            tmp_path,
            served.url,
            num_steps=steps,
            prompts_per_step=4,
            group_size=8,
            max_tokens=8,
            max_staleness=ahead,
            update_weights=late,
            session=TrainingSession(store=tmp_path / "store.db", watch=late.watch),
        )

    rewards = [reward for reward in result.rewards if reward is not None]
    assert max(rewards[:3]) < 0.1
    assert min(rewards[-3:]) > 0.7
    assert served.versions == [f"step-{step}" for step in range(steps + 1)]
    # The first steps have no older weights; later ones are as old as allowed.
    assert [step.staleness for step in result.steps] == [min(n, ahead) for n in range(steps)]
    assert [step.staleness_max for step in result.steps] == [min(n, ahead) for n in range(steps)]
    assert [step.weight_versions for step in result.steps] == [
        {f"step-{max(0, n - ahead)}": 32} for n in range(steps)
    ]
    assert {step.stale for step in result.steps} == {0}
    weights = [step.importance_weight for step in result.steps if step.importance_weight]
    if ahead == 0:
        assert weights == pytest.approx([1.0] * steps, abs=1e-4)
    else:
        assert max(abs(weight - 1) for weight in weights) > 0.01


def test_sampling_and_learning_in_turn_is_what_one_process_does(tmp_path: Path) -> None:
    local = train_served(tmp_path / "local", None)
    with serving(word_model([], seed=7)) as served:
        remote = train_served(tmp_path / "remote", served.url)

    # Up to the rounding of other batches, which may change a sampled token now and then.
    assert local.rewards == pytest.approx(remote.rewards, abs=0.05)
    for one, other in zip(
        local.model.model.parameters(), remote.model.model.parameters(), strict=True
    ):
        assert one.detach().numpy() == pytest.approx(other.detach().numpy(), abs=0.02)


def test_importance_weights_are_those_of_a_hand_calculation(tmp_path: Path) -> None:
    late = LateUpdate(1, last=2)
    with serving(word_model([], seed=7)) as served:
        result = train_served(
            tmp_path,
            served.url,
            num_steps=2,
            max_staleness=1,
            importance_cap=1.1,
            update_weights=late,
            checkpoint_every=1,
            session=TrainingSession(store=tmp_path / "store.db", watch=late.watch),
        )

    # The second step learned with the weights of step 1 from rollouts of the first weights.
    policy = word_model([], seed=0).model
    _, state = Checkpoints(tmp_path / "out" / "checkpoints", keep=2).load(1)
    policy.load_state_dict(state["weights"], strict=False)
    with Store.open(tmp_path / "store.db") as store:
        samples = [
            sample
            for sample in store.run(result.run_id).samples()
            if sample.metadata["training_step"] == 2
        ]
    weights, gains = [], []
    for sample in samples:
        assert sample.trajectory is not None
        (call,) = sample.trajectory.calls
        assert call.weight_version == "step-0"
        assert call.prompt_ids is not None
        assert call.completion_ids is not None
        ids = [*call.prompt_ids, *call.completion_ids]
        with torch.no_grad():
            now = policy(torch.tensor([ids])).logits[0].log_softmax(-1)
        for place, (token, recorded) in enumerate(
            zip(call.completion_ids, call.logprobs or (), strict=True), start=len(call.prompt_ids)
        ):
            weights.append(min(1.1, math.exp(float(now[place - 1, token]) - recorded)))
            group = [each.reward or 0.0 for each in samples if each.id == sample.id]
            # In the first update the ratio of new to old policy is 1.
            spread = stdev(group) + 1e-4
            gains.append(weights[-1] * ((sample.reward or 0.0) - mean(group)) / spread)
    step = result.steps[1]
    assert step.loss == pytest.approx(-sum(gains) / len(gains), abs=1e-5)
    assert step.importance_weight == pytest.approx(sum(weights) / len(weights), abs=1e-5)
    assert step.importance_capped == pytest.approx(
        sum(weight >= 1.1 for weight in weights) / len(weights), abs=1e-9
    )
    assert 0 < (step.importance_capped or 0) < 1


@pytest.mark.parametrize("ahead", [1, 2])
def test_later_rollouts_are_made_while_a_step_is_learned(
    ahead: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: dict[int, threading.Event] = {step: threading.Event() for step in range(1, 5)}
    update = Policy.update
    learned: list[bool] = []

    def update_late(policy: Policy, *given: Any, **named: Any) -> Any:
        # The first steps: the rollouts of all steps that may be ahead end before the update does.
        if not learned:
            learned.append(all(made[step].wait(30) for step in range(1, 2 + ahead)))
            assert not made[2 + ahead].is_set()
        return update(policy, *given, **named)

    def watch(event: TrainingEvent) -> None:
        if isinstance(event, RolloutFinished) and event.done == event.of:
            made[event.step].set()

    monkeypatch.setattr(Policy, "update", update_late)
    with serving(word_model([], seed=7)) as served:
        session = TrainingSession(store=tmp_path / "store.db", watch=watch)
        train_served(tmp_path, served.url, num_steps=4, max_staleness=ahead, session=session)

    assert learned == [True]


@pytest.mark.parametrize("ahead", [0, 1])
def test_evaluations_ask_the_server_for_the_weights_of_their_step(
    ahead: int, tmp_path: Path
) -> None:
    with serving(word_model([], seed=7)) as served:
        config = served_config(tmp_path, served.url, num_steps=4, eval_every=2, max_staleness=ahead)
        result = grpo_train(
            config,
            LETTERS,
            share_of_a,
            model=word_model([], seed=config.seed),
            eval_dataset=[{"id": "held-out", "prompt": "say a 9"}],
            session=TrainingSession(store=tmp_path / "store.db"),
        )

    assert [each.step for each in result.evaluations] == [0, 2, 4]
    with Store.open(tmp_path / "store.db") as store:
        for evaluation in result.evaluations:
            (sample,) = store.run(evaluation.run_id).samples()
            assert sample.trajectory is not None
            versions = {call.weight_version for call in sample.trajectory.calls}
            assert versions == {f"step-{evaluation.step}"}


def test_a_tool_is_used_over_two_turns_and_lora_weights_are_merged(tmp_path: Path) -> None:
    with serving(lamp_model(seed=7)) as served:
        config = lamp_config(tmp_path, server=served.url, lora=Lora(rank=2))
        result = grpo_train(
            config,
            PROMPTS,
            looked_and_said,
            Lamp,
            model=lamp_model(),
            session=TrainingSession(store=tmp_path / "store.db"),
        )

    assert [(step.valid, step.failed) for step in result.steps] == [(12, {})] * 2
    assert all(step.importance_weight == pytest.approx(1, abs=1e-3) for step in result.steps)
    assert max(step.turns or 0 for step in result.steps) > 1


async def ask_client(sample: Sample, context: RunContext) -> str:
    assert context.client is not None
    return (await context.client.complete(context.messages, seed=2)).message.text


async def ask_over_http(sample: Sample, context: RunContext) -> str:
    body = {"model": "any", "messages": [{"role": "user", "content": context.messages[0].text}]}
    headers = {"Authorization": f"Bearer {context.api_key}"}
    url = f"{context.base_url}/chat/completions"
    async with ClientSession(headers=headers) as http, http.post(url, json=body) as answer:
        said = (await answer.json())["choices"][0]["message"]["content"]
    return str(said or "")


@pytest.mark.parametrize("agent", [ask_client, ask_over_http])
def test_the_model_behind_an_agent_may_be_served(agent: Any, tmp_path: Path) -> None:
    with serving(word_model([], seed=7)) as served:
        config = served_config(tmp_path, served.url, num_steps=1)
        result = grpo_train(
            config,
            LETTERS,
            share_of_a,
            agent=agent,
            model=word_model([]),
            session=TrainingSession(store=tmp_path / "store.db"),
        )

    (step,) = result.steps
    assert (step.valid, step.failed, step.weight_versions) == (8, {}, {"step-0": 8})
    assert step.trained_rollouts == 8


def test_a_call_without_ids_or_logprobs_is_refused_by_name() -> None:
    call = ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0,))
    check_recorded_tokens(call, where="here")
    with pytest.raises(ConfigError, match="no `token_ids` and no `logprobs`"):
        check_recorded_tokens(ModelCall(prompt_ids=(1,)), where="here")


def rollout(*versions: str | None, failed: bool = False) -> Sample:
    calls = [
        ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0,), weight_version=version)
        for version in versions
    ]
    trajectory = Trajectory(messages=[Message(role="user", content="?")], calls=calls)
    sample = Sample(prompt="?", trajectory=trajectory)
    if failed:
        sample = sample.model_copy(update={"failure": {"boundary": "endpoint"}})
    return sample


def test_a_rollout_is_as_old_as_the_oldest_weights_that_sampled_it() -> None:
    assert find_oldest_version(rollout("step-12", "step-9", "step-10")) == ("step-9", 9)
    assert find_oldest_version(rollout("step-3", "initial")) == ("initial", None)
    assert find_oldest_version(rollout()) == (None, None)
    assert find_oldest_version(Sample(prompt="?")) == (None, None)
    retried = ModelCall(weight_version="step-1", purpose="retry")
    sample = rollout("step-4")
    assert sample.trajectory is not None
    # A call that failed has no version: it sampled nothing.
    sample.trajectory.calls += [retried, ModelCall(error="HTTP 503")]
    assert find_oldest_version(sample) == ("step-4", 4)


def test_only_rollouts_within_the_bound_are_kept() -> None:
    group = RolloutGroup(
        (
            rollout("step-5"),
            rollout("step-5", "step-4"),
            rollout("step-3"),
            rollout("initial"),
            rollout("step-0", failed=True),
            rollout("step-6"),
        )
    )

    kept = drop_stale_rollouts(StepRollouts([group], 8, 0.0, 0, 0), learned=5, max_staleness=1)

    assert kept.groups[0].samples == tuple(group.samples[place] for place in (0, 1, 4, 5))
    assert (kept.stale, kept.staleness) == (2, (0, 1, 0))
    assert kept.weight_versions == {
        "initial": 1,
        "step-3": 1,
        "step-4": 1,
        "step-5": 1,
        "step-6": 1,
    }


class Model:
    """Answers as a server does, with a version or without one."""

    endpoint = Endpoint(provider="vllm", model="m")

    def __init__(self, version: str | None) -> None:
        self.version = version
        self.update: Any = None

    async def complete(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[ToolSpec] = (),
        seed: int | None = None,
    ) -> Reply:
        self.update()
        call = ModelCall(weight_version=self.version)
        return Reply(Message(role="assistant", content="x"), call)

    async def close(self) -> None: ...


@pytest.mark.parametrize(
    ("named", "recorded"), [(None, "step-1"), ("step-0", "step-0"), ("initial", "initial")]
)
def test_a_call_has_the_version_that_the_server_names_or_that_it_had_when_asked(
    named: str | None, recorded: str
) -> None:
    model = Model(named)
    client = VersionedClient(model)
    client.version = "step-1"

    def update() -> None:
        client.version = "step-2"

    model.update = update

    reply = asyncio.run(client.complete([Message(role="user", content="?")]))

    assert reply.call.weight_version == recorded
