"""GRPO against servers that are unfit, ignore new weights, restart or disappear."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError, EndpointError, TrainingError
from assay.runner import Stop
from assay.store import Store
from assay.train.grpo import GRPOResult, grpo_train
from assay.train.served_policy import EveryRolloutStale
from assay.train.toy_model import character_model
from assay.train.training_session import (
    ServerUnreachable,
    StepFinished,
    TrainingEvent,
    TrainingSession,
)
from assay.train.weight_updates import PolicyWeights, ReloadVLLM, UploadWeights
from assay.types import Endpoint, Message, Sample
from lamps import share_of_a
from served_models import ServedModel, serving
from served_training import LETTERS, served_config, train_served
from word_models import word_model


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


def train_with_vllm(folder: Path, *, reloads: bool) -> GRPOResult:
    letters = "abcdefghijklmnopqrstuvwxyz 0123456789"
    with serving(
        character_model(letters, hidden=16, layers=1, seed=7), without=frozenset(["weight_version"])
    ) as served:
        update = ReloadVLLM(folder / "weights")

        async def update_weights(weights: PolicyWeights, endpoint: Endpoint) -> None:
            await update(weights, endpoint)
            served.reloads = reloads

        return grpo_train(
            served_config(folder, served.url, group_size=16, update_weights=update_weights),
            LETTERS,
            share_of_a,
            model=character_model(letters, hidden=16, layers=1, seed=0),
            session=TrainingSession(store=folder / "store.db"),
        )


def test_a_server_with_the_routes_of_vllm_samples_with_the_folders_it_loads(tmp_path: Path) -> None:
    result = train_with_vllm(tmp_path, reloads=True)

    assert [step.weight_versions for step in result.steps] == [
        {f"step-{number}": 32} for number in range(3)
    ]
    weights = [step.importance_weight for step in result.steps]
    assert weights == pytest.approx([1.0] * 3, abs=1e-4)
    assert [each.name for each in (tmp_path / "weights").iterdir()] == ["step-3"]


def test_vllm_that_reloads_other_weights_ends_the_training(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"ignored the update .* still the same"):
        train_with_vllm(tmp_path, reloads=False)


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
