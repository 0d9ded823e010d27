"""The prompts for SkyRL, loaded by SkyRL's own dataset class."""

from pathlib import Path

import pytest

from assay.export import export_samples
from assay.types import Message, Sample
from tiny_trainer import tiny_tokenizer

SAMPLES = [
    Sample(
        id="a",
        index=3,
        prompt=[Message(role="system", content="Add."), Message(role="user", content="1+1?")],
        ground_truth="2",
        metadata={"env_class": "gsm8k"},
    ),
    Sample(id="b", prompt="Long? " * 100, ground_truth={"any": 1}),
]


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_prompts_are_read_with_their_environment_and_ground_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    from skyrl.train.dataset import PromptDataset

    path = tmp_path / f"a.{ending}"
    export_samples(SAMPLES, path, "skyrl")

    dataset = PromptDataset(str(path), tiny_tokenizer(), max_prompt_length=100, num_workers=1)

    assert len(dataset) == 1
    prompt, env_class, extra, _ = dataset[0]
    assert prompt == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1?"},
    ]
    assert env_class == "gsm8k"
    assert extra["reward_spec"] == {"method": "rule", "ground_truth": "2"}
    assert extra["extra_info"] == {"index": 3, "id": "a"}
