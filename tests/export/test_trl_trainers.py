"""The files for TRL, read by `datasets` and trained on for one step by TRL's own trainers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.export import Selection, export_samples
from assay.types import EvaluateResult, Message, ModelCall, Sample, ToolCall, Trajectory
from tiny_trainer import settings, tiny_model, tiny_tokenizer

TOOLS = [
    {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
    {"name": "look", "parameters": {"type": "object", "properties": {"where": {"type": "string"}}}},
]


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")


def answered(number: int, *, score: float, words: str) -> Sample:
    """A conversation with an assistant turn in its prompt, two calls at once, and an answer."""
    prompt = [
        Message(role="system", content="You add."),
        Message(role="user", content="Hello"),
        Message(role="assistant", content="WRITTEN BY OTHERS"),
        Message(role="user", content=f"{number} + 1?"),
    ]
    calls = (
        ToolCall(id="1", name="add", arguments={"a": number}),
        ToolCall(id="2", name="look", arguments={"where": "north"}),
    )
    made = [
        Message(role="assistant", content=None, tool_calls=calls),
        Message(role="tool", content="TOLD BY A TOOL", tool_call_id="1"),
        Message(role="tool", content="TOLD BY A TOOL", tool_call_id="2"),
        Message(role="assistant", content=words),
    ]
    return Sample(
        id=f"s{number}",
        prompt=prompt,
        ground_truth=str(number + 1),
        trajectory=Trajectory(messages=[*prompt, *made], tools=TOOLS),
        score=EvaluateResult(score=score),
        status="completed",
    )


@pytest.fixture
def samples() -> list[Sample]:
    return [
        answered(number, score=score, words=f"{words} {number}")
        for number in range(2)
        for score, words in ((1.0, "GOOD"), (0.0, "BAD"))
    ]


def loaded(path: Path, folder: Path) -> Any:
    from datasets import load_dataset

    return load_dataset("json", data_files=str(path), split="train", cache_dir=str(folder / "hf"))


def exported(samples: list[Sample], form: str, folder: Path, **chosen: Any) -> Path:
    path = folder / f"{form}.jsonl"
    report = export_samples(samples, path, form, selection=Selection(**chosen))
    assert report.rows, report
    return path


def trained_words(trainer: Any) -> Iterator[str]:
    """What the labels of each row say: the words that the loss is made of."""
    for row in trainer.train_dataset:
        yield tiny_tokenizer().decode([label for label in row["labels"] if label != -100])


def test_sft_learns_from_the_agents_turns_and_from_nothing_else(
    samples: list[Sample], tmp_path: Path
) -> None:
    from trl import SFTConfig, SFTTrainer

    rows = loaded(exported(samples, "trl-sft", tmp_path, min_score=0.5), tmp_path)
    config = SFTConfig(**settings(tmp_path, max_length=None, assistant_only_loss=True))
    trainer = SFTTrainer(
        tiny_model(), args=config, train_dataset=rows, processing_class=tiny_tokenizer()
    )

    done = trainer.train()

    assert done.global_step == 1
    first, second = trained_words(trainer)
    assert "GOOD 0" in first
    assert "GOOD 1" in second
    assert '{"a": 0}' in first.replace('"a":0', '"a": 0')
    for words in (first, second):
        assert "BAD" not in words
        assert "BY OTHERS" not in words
        assert "BY A TOOL" not in words


def test_sft_learns_from_one_list_of_messages(tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    talk = [Message(role="user", content="Q?"), Message(role="assistant", content="GOOD")]
    sample = Sample(
        prompt=talk[:1],
        trajectory=Trajectory(messages=talk, tools=TOOLS),
        score=EvaluateResult(score=1.0),
    )
    rows = loaded(exported([sample, sample], "trl-sft-messages", tmp_path), tmp_path)
    config = SFTConfig(**settings(tmp_path, max_length=None, assistant_only_loss=True))
    trainer = SFTTrainer(
        tiny_model(), args=config, train_dataset=rows, processing_class=tiny_tokenizer()
    )

    assert trainer.train().global_step == 1
    assert list(trained_words(trainer)) == ["GOOD[end]"] * 2
    assert "look" in tiny_tokenizer().decode(trainer.train_dataset[0]["input_ids"])


def test_the_loaded_rows_are_as_written_with_no_keys_filled_in(
    samples: list[Sample], tmp_path: Path
) -> None:
    path = exported(samples, "trl-sft", tmp_path)

    rows = [json.loads(line) for line in path.read_text().splitlines()]

    assert loaded(path, tmp_path)[0]["completion"] == rows[0]["completion"]
    calls = rows[0]["completion"][0]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [{"a": 0}, {"where": "north"}]
    assert [tool["function"]["name"] for tool in json.loads(rows[0]["tools"])] == ["add", "look"]


def test_sft_takes_recorded_tokens_with_the_labels_that_the_mask_says(tmp_path: Path) -> None:
    from trl import SFTConfig, SFTTrainer

    from assay.export import ExportOptions

    prompt, completion = tuple(tiny_tokenizer()("Q?").input_ids), (30, 31, 1)
    call = ModelCall(prompt_ids=prompt, completion_ids=completion, message_index=1)
    sample = Sample(
        id="t",
        prompt="Q?",
        trajectory=Trajectory(
            messages=[Message(role="user", content="Q?"), Message(role="assistant", content="x")],
            calls=[call],
        ),
        score=EvaluateResult(score=1.0),
    )

    def tokenise(given: Sample) -> list[Sample]:
        mask = [0.0] * len(prompt) + [1.0] * len(completion)
        return [given.model_copy(update={"tokens": [*prompt, *completion], "loss_mask": mask})]

    path = tmp_path / "t.jsonl"
    export_samples(
        [sample, sample], path, "trl-sft-tokens", options=ExportOptions(tokenise=tokenise)
    )
    config = SFTConfig(**settings(tmp_path, max_length=None))
    trainer = SFTTrainer(
        tiny_model(),
        args=config,
        train_dataset=loaded(path, tmp_path),
        processing_class=tiny_tokenizer(),
    )

    assert trainer.train().global_step == 1
    assert trainer.train_dataset[0]["labels"] == [-100] * len(prompt) + list(completion)


def test_grpo_rolls_out_the_prompts_and_rewards_by_the_ground_truth(
    samples: list[Sample], tmp_path: Path
) -> None:
    from trl import GRPOConfig, GRPOTrainer

    seen: list[tuple[str, str]] = []

    def reward(
        completions: list[Any], ground_truth: list[str], id: list[str], **rest: Any
    ) -> list[float]:
        seen.extend(zip(id, ground_truth, strict=True))
        return [float(len(each[0]["content"])) for each in completions]

    rows = loaded(exported(samples, "trl-grpo", tmp_path), tmp_path)
    config = GRPOConfig(**settings(tmp_path, num_generations=2, max_completion_length=4, beta=0.0))
    trainer = GRPOTrainer(
        tiny_model(),
        reward_funcs=reward,
        args=config,
        train_dataset=rows,
        processing_class=tiny_tokenizer(),
    )

    assert len(rows) == 2
    assert trainer.train().global_step == 1
    assert set(seen) <= {("s0", "1"), ("s1", "2")}
    assert seen


def test_dpo_prefers_the_best_answer_to_the_worst(samples: list[Sample], tmp_path: Path) -> None:
    from trl import DPOConfig, DPOTrainer

    rows = loaded(exported(samples, "trl-preference", tmp_path), tmp_path)
    config = DPOConfig(**settings(tmp_path, max_length=None))
    trainer = DPOTrainer(
        tiny_model(),
        ref_model=tiny_model(),
        args=config,
        train_dataset=rows,
        processing_class=tiny_tokenizer(),
    )

    assert trainer.train().global_step == 1
    assert [row["chosen"][-1]["content"] for row in rows] == ["GOOD 0", "GOOD 1"]
    assert [row["rejected"][-1]["content"] for row in rows] == ["BAD 0", "BAD 1"]
    words = tiny_tokenizer().decode(trainer.train_dataset[0]["chosen_ids"])
    assert "GOOD 0" in words
    assert "BY OTHERS" not in words


def test_kto_is_told_which_answers_are_good(samples: list[Sample], tmp_path: Path) -> None:
    from trl import KTOConfig, KTOTrainer

    rows = loaded(exported(samples, "trl-kto", tmp_path, min_score=0.5), tmp_path)
    config = KTOConfig(**settings(tmp_path, max_length=None))
    trainer = KTOTrainer(
        tiny_model(),
        ref_model=tiny_model(),
        args=config,
        train_dataset=rows,
        processing_class=tiny_tokenizer(),
    )

    assert [row["label"] for row in rows] == [True, False, True, False]
    assert trainer.train().global_step == 1
