"""The files for verl, loaded and rendered by verl's own dataset classes."""

from pathlib import Path
from typing import Any

import pytest

from assay.export import ExportReport, export_samples
from assay.types import EvaluateResult, Message, Sample, ToolCall, Trajectory
from make import answered, asked, said
from tiny_trainer import tiny_tokenizer

WEATHER = {
    "name": "weather",
    "parameters": {
        "type": "object",
        "properties": {"location": {"type": "string"}},
        "required": ["location"],
    },
}
SEARCH = {
    "name": "search",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}}},
}
DOCS = Path(__file__).parents[2] / "docs" / "export.md"


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))


def rollout(*calls: tuple[str, dict[str, Any]], tools: list[dict[str, Any]]) -> Sample:
    """A conversation in which the agent makes these calls, one after the other."""
    talk: list[Message] = [asked("Well?")]
    for n, (name, arguments) in enumerate(calls):
        talk.append(said("I look.", ToolCall(id=f"c{n}", name=name, arguments=arguments)))
        talk.append(answered("18 degrees", f"c{n}"))
    talk.append(said("Warm."))
    return Sample(
        prompt=talk[:1],
        trajectory=Trajectory(messages=talk, tools=tools),
        score=EvaluateResult(score=1.0),
        status="completed",
    )


PARIS = rollout(("weather", {"location": "Paris"}), tools=[WEATHER])
NEWS = rollout(("search", {"query": "news"}), tools=[SEARCH])


def export(path: Path, *samples: Sample) -> ExportReport:
    report = export_samples(list(samples), path, "verl-sft")
    assert report.rows == len(samples), report
    return report


def load(*paths: Path, kind: Any = None) -> Any:
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    settings = {"max_length": 4096, "pad_mode": "no_padding"}
    files = [str(path) for path in paths]
    return (kind or MultiTurnSFTDataset)(files, tiny_tokenizer(), settings)


def render(dataset: Any, place: int) -> str:
    return str(tiny_tokenizer().decode(dataset[place]["input_ids"]))


def test_arguments_and_tools_reach_the_chat_template_as_objects(tmp_path: Path) -> None:
    report = export(tmp_path / "a.parquet", PARIS, PARIS)

    text = render(load(tmp_path / "a.parquet"), 1)

    assert '[call]weather{"location": "Paris"}[end]' in text
    assert '"name": "weather"' in text.partition("[end]")[0]
    assert "null" not in text
    assert not report.lost
    assert not report.notes


def test_the_loss_covers_the_turns_of_the_agent_only(tmp_path: Path) -> None:
    export(tmp_path / "a.parquet", PARIS)

    row = load(tmp_path / "a.parquet")[0]

    trained = tiny_tokenizer().decode(row["input_ids"][row["loss_mask"] == 1])
    assert "I look." in trained
    assert '{"location": "Paris"}' in trained
    assert "18 degrees" not in trained


def test_files_of_one_tool_set_each_are_read_together_without_foreign_keys(tmp_path: Path) -> None:
    export(tmp_path / "paris.parquet", PARIS)
    export(tmp_path / "news.parquet", NEWS)

    dataset = load(tmp_path / "paris.parquet", tmp_path / "news.parquet")

    assert '[call]weather{"location": "Paris"}[end]' in render(dataset, 0)
    assert '[call]search{"query": "news"}[end]' in render(dataset, 1)
    assert "null" not in render(dataset, 0) + render(dataset, 1)


def test_keys_padded_in_a_shared_file_are_counted_with_a_way_out(tmp_path: Path) -> None:
    report = export(tmp_path / "a.parquet", PARIS, NEWS)

    text = render(load(tmp_path / "a.parquet"), 0)

    assert '{"location": "Paris", "query": null}' in text
    padded = "padded with null for keys that other objects of the column have"
    assert report.lost == {
        f"messages[].tool_calls[].function.arguments: {padded}": 2,
        f"tools[].function: {padded}": 2,
    }
    assert any("assay docs export" in note for note in report.notes)


def documented_class() -> Any:
    """The class that docs/export.md shows, as it is written there."""
    blocks = DOCS.read_text(encoding="utf-8").split("```python\n")[1:]
    (code,) = (block.partition("```")[0] for block in blocks if "class WithoutNulls" in block)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["WithoutNulls"]


def test_the_documented_class_restores_every_object(tmp_path: Path) -> None:
    both = rollout(
        ("weather", {"location": "Paris"}),
        ("search", {"query": "news", "sites": ["a", "b"]}),
        ("now", {}),
        tools=[WEATHER, SEARCH, {"name": "now", "parameters": {"type": "object"}}],
    )
    export(tmp_path / "a.parquet", both, PARIS)

    dataset = load(tmp_path / "a.parquet", kind=documented_class())

    first, second = render(dataset, 0), render(dataset, 1)
    assert '[call]weather{"location": "Paris"}[end]' in first
    assert '[call]search{"query": "news", "sites": ["a", "b"]}[end]' in first
    assert "[call]now{}[end]" in first
    assert '[call]weather{"location": "Paris"}[end]' in second
    assert "null" not in first + second


def test_a_file_in_which_nobody_has_tools_shows_none_to_the_template(tmp_path: Path) -> None:
    export(tmp_path / "a.parquet", rollout(tools=[]), rollout(tools=[]))

    dataset = load(tmp_path / "a.parquet")

    assert dataset.tools is None
    assert dataset.messages[0] == [
        {"role": "user", "content": "Well?"},
        {"role": "assistant", "content": "Warm."},
    ]


def test_a_row_without_tools_is_read_beside_one_with_tools(tmp_path: Path) -> None:
    export(tmp_path / "a.parquet", PARIS, rollout(tools=[]))

    assert "[tools]" not in render(load(tmp_path / "a.parquet"), 1)


def test_prompts_are_read_by_the_dataset_of_the_rl_trainers(tmp_path: Path) -> None:
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    given = Sample(id="a", index=3, prompt="1+1?", ground_truth="2", input={"data_source": "sums"})
    export_samples([given], tmp_path / "a.parquet", "verl")
    config = OmegaConf.create(
        {"cache_dir": str(tmp_path), "filter_overlong_prompts": False, "max_prompt_length": 100}
    )

    row = RLHFDataset([str(tmp_path / "a.parquet")], tiny_tokenizer(), config)[0]

    assert row["raw_prompt"] == [{"role": "user", "content": "1+1?"}]
    assert row["reward_model"] == {"style": "rule", "ground_truth": "2"}
    assert (row["data_source"], row["index"]) == ("sums", 3)
