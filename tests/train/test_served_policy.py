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
from assay.errors import ConfigError, EndpointError, TrainingError
from assay.providers import Reply, VersionedClient
from assay.runner import Stop
from assay.store import Store
from assay.train.batches import RolloutGroup
from assay.train.checkpoints import Checkpoints
from assay.train.grpo import GRPOResult, grpo_train
from assay.train.grpo_config import GRPOConfig
from assay.train.lora import Lora
from assay.train.policy import Policy
from assay.train.rollout_collector import StepRollouts
from assay.train.served_policy import (
    EveryRolloutStale,
    check_recorded_tokens,
    drop_stale_rollouts,
    find_oldest_version,
)
from assay.train.training_session import (
    RolloutFinished,
    ServerUnreachable,
    StepFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.train.weight_updates import PolicyWeights, UploadWeights
from assay.types import Endpoint, Message, ModelCall, Sample, ToolSpec, Trajectory
from lamps import PROMPTS, Lamp, lamp_config, lamp_model, looked_and_said, share_of_a
from served_models import ServedModel, serving
from word_models import word_model

LETTERS = [{"id": str(number), "prompt": f"say a {number}"} for number in range(8)]


def served_config(folder: Path, url: str | None, **fields: Any) -> GRPOConfig:
    settings: dict[str, Any] = {
        "model_name": "letters",
        "output": folder / "out",
        "num_steps": 3,
        "prompts_per_step": 2,
        "group_size": 4,
        "max_tokens": 6,
        "learning_rate": 1e-2,
        "server": url,
    }
    return GRPOConfig(**{**settings, **fields})


def train_served(
    folder: Path, url: str | None, *, session: TrainingSession | None = None, **fields: Any
) -> GRPOResult:
    config = served_config(folder, url, **fields)
    return grpo_train(
        config,
        LETTERS,
        share_of_a,
        model=word_model([], seed=config.seed),
        session=session or TrainingSession(store=folder / "store.db"),
    )


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


def train_restarted(
    folder: Path, served: ServedModel, *, resume: bool = False, **fields: Any
) -> GRPOResult:
    """Train against a server that loses its weights before the steps in `served.restarts`."""

    def prepare(sample: Sample) -> list[Message]:
        if sample.metadata.get("training_step") in served.restarts:
            served.local.weight_version = "initial"
        return sample.messages

    return grpo_train(
        served_config(folder, served.url, **fields),
        LETTERS,
        share_of_a,
        prepare_messages=prepare,
        model=word_model([]),
        session=TrainingSession(store=folder / "store.db", resume=resume),
    )


def test_rollouts_of_unknown_weights_are_dropped_and_counted(tmp_path: Path) -> None:
    with serving(word_model([], seed=7)) as served:
        served.restarts = {2, 4}
        result = train_restarted(tmp_path, served, num_steps=4)

    found = [(step.stale, step.rollouts, step.reward is None) for step in result.steps]
    assert found == [(0, 8, False), (8, 0, True)] * 2
    assert [step.updated for step in result.steps[1::2]] == [False, False]
    assert [step.weight_versions for step in result.steps] == [
        {"step-0": 8},
        {"initial": 8},
        {"step-2": 8},
        {"initial": 8},
    ]
    with Store.open(tmp_path / "store.db") as store:
        assert len(list(store.run(result.run_id).samples())) == 32


def test_a_server_that_stays_behind_ends_the_training_and_a_resume_heals_it(tmp_path: Path) -> None:
    with serving(word_model([], seed=7)) as served:
        served.restarts = {2, 3, 4}
        with pytest.raises(EveryRolloutStale, match=r"step 4 accepts 'step-3' .* as 'initial'"):
            train_restarted(tmp_path, served, num_steps=5)
        served.restarts = set()
        rest = train_restarted(tmp_path, served, num_steps=5, resume=True)

    assert [step.stale for step in rest.steps] == [0, 8, 8, 8, 0]


class SilentServer:
    """A hook whose server takes only some versions, and says it took all."""

    def __init__(self, when: Sequence[str]) -> None:
        self._when = when
        self._upload = UploadWeights()
        self.asked: list[str] = []

    async def __call__(self, weights: PolicyWeights, endpoint: Endpoint) -> None:
        self.asked.append(weights.version)
        if weights.version in self._when:
            await self._upload(weights, endpoint)


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ([], "it answers as 'step-0'"),
        (["weight_version"], "its logprobs are still the same"),
    ],
    ids=["named versions", "no versions"],
)
def test_a_server_that_ignores_new_weights_ends_the_training(
    without: list[str], reason: str, tmp_path: Path
) -> None:
    silent = SilentServer(["step-0"])
    with serving(word_model([], seed=7), without=frozenset(without)) as served:
        with pytest.raises(TrainingError, match=f"ignored the update to 'step-1': {reason}"):
            train_served(tmp_path, served.url, update_weights=silent)
        session = TrainingSession(store=tmp_path / "store.db", resume=True)
        rest = train_served(tmp_path, served.url, session=session)

    # Tried again once: the server might have been restarted just after the update.
    assert silent.asked == ["step-0", "step-1", "step-1"]
    assert [(step.step, step.stale) for step in rest.steps] == [(1, 0), (2, 0), (3, 0)]


def test_a_server_of_another_precision_is_taken_at_its_word(tmp_path: Path) -> None:
    def round_logprobs(body: dict[str, Any]) -> None:
        for entry in body["choices"][0]["logprobs"]["content"]:
            entry["logprob"] = round(entry["logprob"], 1)

    with serving(
        word_model([], seed=7), without=frozenset(["weight_version"]), change=round_logprobs
    ) as served:
        result = train_served(tmp_path, served.url, num_steps=6)

    assert [step.weight_versions for step in result.steps] == [
        {f"step-{number}": 8} for number in range(6)
    ]


def test_a_noisy_server_that_ignores_new_weights_is_found_by_its_logprobs(tmp_path: Path) -> None:
    """Without versions and with answers that differ by chance, as those of large batches do."""
    noise = 0.0

    def add_noise(body: dict[str, Any]) -> None:
        nonlocal noise
        noise += 0.001
        for entry in body["choices"][0]["logprobs"]["content"]:
            entry["logprob"] -= noise

    with (
        serving(
            word_model([], seed=7), without=frozenset(["weight_version"]), change=add_noise
        ) as served,
        pytest.raises(TrainingError, match=r"logprobs differ .* by \d+\.\d\d on average"),
    ):
        train_served(
            tmp_path,
            served.url,
            num_steps=40,
            prompts_per_step=4,
            update_weights=SilentServer(["step-0"]),
        )


@pytest.mark.parametrize(
    "missing",
    [
        ["token_ids"],
        ["prompt_token_ids"],
        ["logprobs"],
        ["token_ids", "prompt_token_ids", "logprobs"],
    ],
    ids=str,
)
def test_a_server_without_ids_or_logprobs_is_refused_before_the_first_step(
    missing: list[str], tmp_path: Path
) -> None:
    events: list[TrainingEvent] = []
    session = TrainingSession(store=tmp_path / "store.db", watch=events.append)
    with (
        serving(word_model([], seed=7), without=frozenset(missing)) as served,
        pytest.raises(ConfigError, match="cannot be trained against") as caught,
    ):
        train_served(tmp_path, served.url, session=session)

    assert all(f"`{name}`" in str(caught.value) for name in missing)
    assert not events
    assert [method for method, _ in served.log] == ["PUT", "POST"]
    assert not (tmp_path / "out" / "training.json").exists()


@pytest.mark.parametrize(
    ("without", "reason"),
    [
        ([], "it answers as 'initial'"),
        (["weight_version"], r"logprobs differ .* by \d+\.\d\d on average"),
    ],
    ids=["named versions", "no versions"],
)
def test_a_server_with_other_weights_is_refused(
    without: list[str], reason: str, tmp_path: Path
) -> None:
    with (
        serving(word_model([], seed=7, bias=20.0), without=frozenset(without)) as served,
        pytest.raises(ConfigError, match=reason),
    ):
        train_served(tmp_path, served.url, update_weights=SilentServer([]))

    assert not (tmp_path / "out" / "training.json").exists()


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda choice: {"token_ids": [*choice["token_ids"], 1]}, r"no `logprobs` .*: 5 for 6"),
        (lambda choice: {"token_ids": [10**6] * 5}, "does not have"),
        (lambda choice: {"token_ids": ["a"] * 5}, "no `token_ids`"),
        (
            lambda choice: {"logprobs": {"content": [{"logprob": None}] * 5}},
            "no `logprobs` .*: not all are finite numbers",
        ),
    ],
    ids=["other lengths", "unknown ids", "no ids", "no number"],
)
def test_an_answer_that_cannot_be_trained_on_is_refused_with_the_reason(
    broken: Any, reason: str, tmp_path: Path
) -> None:
    def change(body: dict[str, Any]) -> None:
        (choice,) = body["choices"]
        choice.update(broken(choice))

    with (
        serving(word_model([], seed=7), change=change) as served,
        pytest.raises(ConfigError, match=reason),
    ):
        train_served(tmp_path, served.url)

    assert not (tmp_path / "out" / "training.json").exists()


def test_a_server_with_another_tokenizer_is_refused(tmp_path: Path) -> None:
    """The weights are the same, and so are all logprobs: only the text differs."""

    def shift(body: dict[str, Any]) -> None:
        body["prompt_token_ids"] = [each + 1 for each in body["prompt_token_ids"]]

    with (
        serving(word_model([], seed=7), change=shift) as served,
        pytest.raises(ConfigError, match="another tokenizer than the trained model"),
    ):
        train_served(tmp_path, served.url)


def test_a_call_without_ids_or_logprobs_is_refused_by_name() -> None:
    call = ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(-1.0,))
    check_recorded_tokens(call, where="here")
    with pytest.raises(ConfigError, match="no `token_ids` and no `logprobs`"):
        check_recorded_tokens(ModelCall(prompt_ids=(1,)), where="here")


def test_a_server_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match=r"127\.0\.0\.1:9/v1/weights: .*\n.*start the server"):
        train_served(tmp_path, "http://127.0.0.1:9/v1")


class StopAfter:
    """Requests a stop when a step is done."""

    def __init__(self, step: int) -> None:
        self.stop = Stop(grace_s=0)
        self._step = step

    def __call__(self, event: TrainingEvent) -> None:
        if isinstance(event, StepFinished) and event.metrics.step == self._step:
            self.stop.request()


@pytest.mark.parametrize("ahead", [0, 2])
def test_a_resume_first_sends_the_restored_weights_to_a_restarted_server(
    ahead: int, tmp_path: Path
) -> None:
    stopper = StopAfter(2)
    with serving(word_model([], seed=7)) as served:
        session = TrainingSession(store=tmp_path / "store.db", watch=stopper, stop=stopper.stop)
        cut = train_served(tmp_path, served.url, num_steps=5, max_staleness=ahead, session=session)
        assert cut.interrupted
        assert served.versions[-1] == "step-2"

    with serving(word_model([], seed=8)) as restarted:
        session = TrainingSession(store=tmp_path / "store.db", resume=True)
        rest = train_served(
            tmp_path, restarted.url, num_steps=5, max_staleness=ahead, session=session
        )

    assert restarted.log[0] == ("PUT", "/v1/weights?version=step-2")
    assert [step.step for step in rest.steps] == [1, 2, 3, 4, 5]
    assert {step.stale for step in rest.steps} == {0}
    assert all((step.staleness_max or 0) <= ahead for step in rest.steps)
    for name, weight in restarted.local.model.named_parameters():
        assert bool((weight == dict(rest.model.model.named_parameters())[name]).all())


def test_an_update_that_fails_ends_the_training_and_a_resume_makes_no_rollout_twice(
    tmp_path: Path,
) -> None:
    upload = UploadWeights()

    async def update(weights: PolicyWeights, endpoint: Endpoint) -> None:
        if weights.version == "step-2":
            raise TrainingError("the disk is full")
        await upload(weights, endpoint)

    with serving(word_model([], seed=7)) as served:
        with pytest.raises(TrainingError, match="the disk is full"):
            train_served(tmp_path, served.url, num_steps=4, max_staleness=2, update_weights=update)
        with Store.open(tmp_path / "store.db") as store:
            assert store.run().status == "failed"
        session = TrainingSession(store=tmp_path / "store.db", resume=True)
        rest = train_served(tmp_path, served.url, num_steps=4, max_staleness=2, session=session)

    # Two steps were learned when the update failed, and there was no checkpoint.
    assert [step.found for step in rest.steps][:2] == [8, 8]
    assert {step.stale for step in rest.steps} == {0}
    with Store.open(tmp_path / "store.db") as store:
        assert len(list(store.run(rest.run_id).samples())) == 32


def test_a_stop_ends_the_wait_for_an_unreachable_server_with_a_checkpoint(tmp_path: Path) -> None:
    stop, events, upload = Stop(grace_s=0), list[TrainingEvent](), UploadWeights()

    async def update(weights: PolicyWeights, endpoint: Endpoint) -> None:
        if weights.version == "step-2":
            raise EndpointError("no connection", where="http://here")
        await upload(weights, endpoint)

    def watch(event: TrainingEvent) -> None:
        events.append(event)
        if isinstance(event, ServerUnreachable):
            stop.request()

    with serving(word_model([], seed=7)) as served:
        session = TrainingSession(store=tmp_path / "store.db", watch=watch, stop=stop)
        cut = train_served(tmp_path, served.url, update_weights=update, session=session)
        session = TrainingSession(store=tmp_path / "store.db", resume=True)
        rest = train_served(tmp_path, served.url, session=session)

    assert ServerUnreachable("http://here", "no connection", 1.0) in events
    assert (cut.interrupted, len(cut.steps)) == (True, 2)
    assert [step.found for step in rest.steps] == [0, 0, 0]


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
    sample.trajectory.calls.append(retried)
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
