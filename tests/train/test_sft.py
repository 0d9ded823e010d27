"""`sft_train`: that it learns, that it repeats itself, and that it goes on where it stopped."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.errors import ConfigError, MissingExtra, TrainingError
from assay.providers.in_process import LocalModel, Sampling
from assay.runner import Stop
from assay.train import Lora, SFTConfig, SFTResult, SFTStep, sft_train
from assay.train.checkpoints import digest_weights
from assay.train.output_folder import OutputFolder
from assay.train.sft import SFTStart, _SFTTraining, check_same_start
from assay.types import Sample
from mask_rollouts import sampled_rollout
from tiny_models import tiny_local, tiny_model, tiny_tokenizer


def rows(count: int = 8) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "user", "content": f"what is {number}?"},
                {"role": "assistant", "content": "hello user"},
            ]
        }
        for number in range(count)
    ]


def train(folder: Path, data: Any = None, **settings: Any) -> SFTResult:
    options = {name: settings.pop(name) for name in ("resume", "watch", "stop") if name in settings}
    model = settings.pop("model", None) or tiny_local()
    defaults: dict[str, Any] = {
        "num_steps": 6,
        "learning_rate": 3e-3,
        "batch_tokens": 150,
        "eval_every": 2,
        "checkpoint_every": 3,
        "held_out": 0.25,
    }
    config = SFTConfig(model_name="tiny", output=folder, **{**defaults, **settings})
    return sft_train(config, rows() if data is None else data, model=model, **options)


def digest(model: LocalModel) -> str:
    return digest_weights(dict(model.model.named_parameters()))


def numbers(steps: list[SFTStep]) -> list[dict[str, Any]]:
    return [step.model_dump(exclude={"seconds"}) for step in steps]


def stopping_at(number: int) -> dict[str, Any]:
    stop = Stop()

    def watch(step: SFTStep) -> None:
        if step.step == number:
            stop.request()

    return {"stop": stop, "watch": watch}


def test_it_learns_to_say_what_the_samples_say(tmp_path: Path) -> None:
    result = train(tmp_path, num_steps=25, held_out=0.2, eval_every=25)

    assert result.steps[-1].loss < 0.3 < result.steps[0].loss
    assert result.held_out_before is not None
    assert result.held_out_after is not None
    assert result.held_out_after < 0.3 < result.held_out_before
    tokenizer = result.model.tokenizer
    asked = rows(20)[19]["messages"][:2]
    prompt = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_dict=False)
    (said,) = result.model.generate([prompt], Sampling(temperature=0, max_tokens=9), seeds=[None])
    assert tokenizer.decode(said.ids) == "hello user<|im_end|>"


def test_a_training_whose_held_out_loss_rises_stops_and_keeps_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"num_steps": 9, "eval_every": 1, "schedule": "constant"}
    best = train(tmp_path / "best", **{**settings, "num_steps": 2})
    losses = iter([3.0, 2.0, 1.0, 1.5, 1.0])
    monkeypatch.setattr(_SFTTraining, "_measure_held_out_loss", lambda self: next(losses))

    result = train(tmp_path / "long", patience=2, **settings)

    assert (result.stopped_early, result.interrupted, len(result.steps)) == (True, False, 4)
    assert result.best_model_path is not None
    assert digest(LocalModel.load(str(result.best_model_path))) == digest(best.model)
    resumed = train(tmp_path / "long", patience=2, resume=True, **settings)
    assert numbers(resumed.steps) == numbers(result.steps)


def test_the_trained_model_is_a_folder_that_loads(tmp_path: Path) -> None:
    result = train(tmp_path)

    assert result.model_path == tmp_path / "model"
    assert digest(LocalModel.load(tmp_path / "model")) == digest(result.model)


def test_the_same_seed_gives_the_same_weights_to_the_bit(tmp_path: Path) -> None:
    one, same, other = (
        train(tmp_path / name, seed=seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )

    assert digest(one.model) == digest(same.model) != digest(other.model)
    assert numbers(one.steps) == numbers(same.steps)


@pytest.mark.parametrize("at", [3, 4])
def test_a_resumed_training_is_the_one_that_was_never_stopped(tmp_path: Path, at: int) -> None:
    whole = train(tmp_path / "whole")

    stopped = train(tmp_path / "cut", **stopping_at(at))
    resumed = train(tmp_path / "cut", resume=True)

    assert [stopped.interrupted, len(stopped.steps)] == [True, at]
    assert stopped.model_path is None
    assert numbers(resumed.steps) == numbers(whole.steps)
    assert digest(resumed.model) == digest(whole.model)
    assert resumed.held_out_before == whole.held_out_before


def test_a_killed_training_goes_on_from_its_newest_checkpoint(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole")

    def die(step: SFTStep) -> None:
        if step.step == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", watch=die)
    resumed = train(tmp_path / "cut", resume=True)

    assert numbers(resumed.steps) == numbers(whole.steps)
    assert digest(resumed.model) == digest(whole.model)


def test_the_first_ctrl_c_ends_a_training_inside_a_running_loop(tmp_path: Path) -> None:
    steps: list[int] = []

    def interrupt(step: SFTStep) -> None:
        steps.append(step.step)
        if step.step == 2:
            os.kill(os.getpid(), signal.SIGINT)

    async def run_cell() -> None:
        handler = signal.getsignal(signal.SIGINT)
        try:
            train(tmp_path, watch=interrupt)
        finally:
            assert signal.getsignal(signal.SIGINT) is handler

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_cell())

    assert steps == [1, 2]


def test_a_training_that_is_done_has_nothing_left_to_do(tmp_path: Path) -> None:
    whole = train(tmp_path)

    again = train(tmp_path, resume=True)

    assert numbers(again.steps) == numbers(whole.steps)
    assert digest(again.model) == digest(whole.model)


CHANGED: dict[str, dict[str, Any]] = {
    "configuration": {"learning_rate": 1e-3},
    "samples": {"data": rows(9)},
    "model": {"model": tiny_local(seed=1)},
}


@pytest.mark.parametrize("what", CHANGED)
def test_a_training_does_not_go_on_with_anything_else(tmp_path: Path, what: str) -> None:
    train(tmp_path, num_steps=1)

    with pytest.raises(ConfigError, match=f"the {what}"):
        train(tmp_path, **{"num_steps": 1, **CHANGED[what]}, resume=True)


def test_how_an_update_is_cut_into_passes_does_not_matter(tmp_path: Path) -> None:
    apart = train(tmp_path / "a", batch_tokens=400, micro_batch_tokens=1)
    together = train(tmp_path / "b", batch_tokens=400, micro_batch_tokens=9**6)

    assert [step.sequences for step in apart.steps] == [step.sequences for step in together.steps]
    assert apart.steps[0].sequences > 1
    for one, other in zip(apart.steps, together.steps, strict=True):
        assert one.loss == pytest.approx(other.loss, rel=1e-3)


def test_epochs_go_through_all_samples(tmp_path: Path) -> None:
    # Answers of many lengths: the epochs have different numbers of batches.
    data = rows()
    for number, row in enumerate(data):
        row["messages"][-1]["content"] = " ".join(["hello user"] * (1 + number * 2))

    result = train(tmp_path, data, num_steps=None, epochs=4, held_out=0.0, batch_tokens=90)

    sizes = [step.sequences for step in result.steps]
    assert sum(sizes) == 4 * 8
    ends = [sum(sizes[: place + 1]) / 8 for place in range(len(sizes))]
    assert [step.epoch for step in result.steps] == ends
    assert len({sum(each <= end and each > end - 1 for each in ends) for end in (1, 2, 3, 4)}) > 1
    assert [result.held_out_before, result.held_out_after] == [None, None]


def test_a_resume_takes_the_steps_after_its_checkpoint_though_their_metrics_are_lost(
    tmp_path: Path,
) -> None:
    whole = train(tmp_path / "whole")
    train(tmp_path / "cut", **stopping_at(3))
    metrics = tmp_path / "cut" / "metrics.jsonl"
    metrics.write_text(metrics.read_text("utf-8").partition("\n")[0] + "\n", "utf-8")

    resumed = train(tmp_path / "cut", resume=True)

    assert digest(resumed.model) == digest(whole.model)
    assert [step.step for step in resumed.steps] == [1, 4, 5, 6]
    assert numbers(resumed.steps[1:]) == numbers(whole.steps[3:])


def test_added_matrices_are_trained_and_resumed_alike(tmp_path: Path) -> None:
    lora = Lora(rank=2)
    whole = train(tmp_path / "whole", lora=lora)

    train(tmp_path / "cut", lora=lora, **stopping_at(3))
    resumed = train(tmp_path / "cut", lora=lora, resume=True)

    assert whole.steps[-1].loss < whole.steps[0].loss
    assert numbers(resumed.steps) == numbers(whole.steps)
    assert (tmp_path / "cut" / "model" / "adapter").is_dir()


def test_rollouts_are_learned_from_the_tokens_that_were_sampled(tmp_path: Path) -> None:
    rollouts = [sampled_rollout("qwen2.5", seed) for seed in range(2)]
    data = [rollout.model_copy(update={"id": f"{n}"}) for n, rollout in enumerate(rollouts)]

    result = train(tmp_path, data, num_steps=1, held_out=0.0, max_length=9**4)

    assert result.data.retokenized == 0
    sampled = sum(len(call.completion_ids or ()) for each in data for call in calls(each))
    assert sum(example.trained for example in result.data.train) == sampled


def calls(sample: Sample) -> Any:
    assert sample.trajectory is not None
    return sample.trajectory.calls


def test_half_the_numbers_take_half_the_memory(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path)
    config = SFTConfig(
        model_name=str(folder), output=tmp_path / "out", num_steps=1, dtype="bfloat16", device="cpu"
    )

    result = sft_train(config, rows())

    assert next(result.model.model.parameters()).dtype == torch.bfloat16


def test_a_step_into_nonsense_is_refused_and_the_checkpoint_kept(tmp_path: Path) -> None:
    model = tiny_local()

    def poison(step: SFTStep) -> None:
        if step.step == 4:
            next(model.model.parameters()).data.fill_(float("nan"))

    with pytest.raises(TrainingError, match="the gradient is nan"):
        train(tmp_path, model=model, watch=poison)

    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-000003"]


def test_the_order_of_random_numbers_outside_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)

    train(tmp_path, num_steps=1)

    assert torch.equal(torch.rand(1), expected)


WRONG: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "warm-up as long as all epochs": (
        lambda folder: {"num_steps": None, "warmup_steps": 10},
        "10 warm-up steps leave none of 2 steps to train in",
    ),
    "no samples": (lambda folder: {"data": []}, "none is left to learn from"),
    "a template that is not there": (
        lambda folder: {"chat_template": folder / "none"},
        "the chat template cannot be read",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_request_is_refused_before_a_step(tmp_path: Path, wrong: str) -> None:
    settings, problem = WRONG[wrong]

    with pytest.raises(ConfigError, match=problem):
        train(tmp_path, **settings(tmp_path))

    assert not (tmp_path / "training.json").exists()


def test_a_model_that_is_not_there_is_refused(tmp_path: Path) -> None:
    config = SFTConfig(model_name=str(tmp_path / "none"), output=tmp_path / "out")

    with pytest.raises(ConfigError, match="is not a folder"):
        sft_train(config, rows())


def test_a_folder_that_another_training_has_is_left_alone(tmp_path: Path) -> None:
    with (
        OutputFolder(tmp_path).claim(resume=False),
        pytest.raises(ConfigError, match=r"process \d+ on .* is training in this folder"),
    ):
        train(tmp_path)

    assert not (tmp_path / "training.json").exists()


def test_without_torch_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)

    with pytest.raises(MissingExtra, match=r"`torch`\n  hint: pip install 'assay-eval\[train\]'"):
        sft_train(SFTConfig(model_name="none", output=tmp_path / "out"), rows())


def test_the_tokenizer_is_saved_with_the_template_it_is_asked_with(tmp_path: Path) -> None:
    other = tmp_path / "other.jinja"
    other.write_text(tiny_tokenizer("smollm2").chat_template)

    result = train(tmp_path / "out", chat_template=other, num_steps=1)

    assert result.model_path is not None
    saved = LocalModel.load(result.model_path).tokenizer
    assert saved.chat_template == tiny_tokenizer("qwen2.5").chat_template


BEGUN = SFTStart(config={"seed": 0, "steps": 2}, data="d", weights="w", held_out_loss=1.5)


@pytest.fixture
def output(tmp_path: Path) -> OutputFolder:
    made = OutputFolder(tmp_path / "out")
    made.begin(BEGUN)
    return made


def test_a_training_goes_on_with_what_it_began_with(output: OutputFolder) -> None:
    assert check_same_start(output, BEGUN.model_copy(update={"held_out_loss": None})) == BEGUN


@pytest.mark.parametrize("name", ["data", "weights"])
def test_another_start_of_a_training_is_refused(output: OutputFolder, name: str) -> None:
    with pytest.raises(ConfigError, match="that training began with"):
        check_same_start(output, BEGUN.model_copy(update={name: "other"}))


def test_the_settings_that_differ_are_named(output: OutputFolder) -> None:
    other = BEGUN.model_copy(update={"config": {"seed": 4, "epochs": 1}})

    with pytest.raises(ConfigError, match="epochs None -> 1, seed 0 -> 4, steps 2 -> None"):
        check_same_start(output, other)
