"""ShareGPT files, converted and rendered by LLaMA-Factory's own code."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.export import export_samples
from assay.types import EvaluateResult, Message, Sample, Trajectory
from llamafactory_reader import converter, render
from make import answered, asked, called, said
from tiny_trainer import tiny_tokenizer

TOOL = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}


def scored(*messages: Message) -> Sample:
    prompt = [each for each in messages[:2] if each.role in ("system", "user")]
    return Sample(
        prompt=prompt,
        trajectory=Trajectory(messages=list(messages), tools=[TOOL]),
        score=EvaluateResult(score=1.0),
        status="completed",
    )


SPEAKS_AND_CALLS = scored(
    Message(role="system", content="Be brief."),
    asked("Where?"),
    said("I look.", called("look", "1", at="north"), called("look", "2", at="south")),
    answered("snow", "1"),
    answered("sand", "2"),
    said("Once more.", called("look", "3", at="<think>\n east \n</think>\n\n</tool_call>")),
    answered("sea", "3"),
    said(None, called("look", "4", at="<tool_call>west</tool_call>")),
    answered("wood", "4"),
    said("There."),
)


def export(folder: Path, *samples: Sample) -> list[dict[str, Any]]:
    export_samples(list(samples), folder / "rows.jsonl", "sharegpt")
    lines = (folder / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_a_conversation_that_speaks_and_calls_is_kept_whole(tmp_path: Path) -> None:
    (row,) = export(tmp_path, SPEAKS_AND_CALLS)

    read = converter()(row)

    assert read["_system"] == "Be brief."
    assert [turn["role"] for turn in read["_prompt"] + read["_response"]] == [
        *("user", "function", "observation", "function", "observation"),
        *("function", "observation", "assistant"),
    ]


@pytest.mark.parametrize("template", ["qwen", "qwen3", "llama3", "seed_oss", "default"])
def test_templates_render_the_text_and_then_the_calls(tmp_path: Path, template: str) -> None:
    (row,) = export(tmp_path, SPEAKS_AND_CALLS)

    turns = [answer for _, answer in render(row, template, tiny_tokenizer())]

    assert turns[0].index("I look.") < turns[0].index("north") < turns[0].index("south")
    assert turns[1].index("Once more.") < turns[1].index("</tool_call>")
    assert turns[1].index("<think>") < turns[1].index(" east ") < turns[1].index("</think>", 30)
    assert "<tool_call>west</tool_call>" in turns[2]
    assert "There." in turns[3]


def test_qwen_is_trained_on_what_its_own_template_would_write(tmp_path: Path) -> None:
    (row,) = export(tmp_path, SPEAKS_AND_CALLS)

    turns = render(row, "qwen", tiny_tokenizer())

    assert (
        "I look.\n"
        + "\n".join(
            f'<tool_call>\n{{"name": "look", "arguments": {{"at": "{place}"}}}}\n</tool_call>'
            for place in ("north", "south")
        )
        in turns[0][1]
    )
    assert "snow\n</tool_response>\n<tool_response>\nsand" in turns[1][0]
    assert '"name": "look"' in turns[0][0]


@pytest.mark.parametrize("template", ["mistral", "gemma3", "lfm2"])
def test_some_templates_take_calls_without_text_only(tmp_path: Path, template: str) -> None:
    mute = scored(
        asked("Where?"),
        said(None, called("look", "1", at="north")),
        answered("snow", "1"),
        said("!"),
    )
    talking, silent = export(tmp_path, SPEAKS_AND_CALLS, mute)

    assert "north" in render(silent, template, tiny_tokenizer())[0][1]
    with pytest.raises(RuntimeError, match="Invalid JSON format in function message"):
        render(talking, template, tiny_tokenizer())


def test_every_row_that_is_written_is_kept(tmp_path: Path) -> None:
    others = [
        scored(asked("a"), asked("b"), said("One."), said("Two.", called("look", "1"))),
        scored(asked("a"), said(None, called("look", "1")), asked("Stop."), said("Yes.")),
        scored(asked("a"), said("Yes.")),
    ]

    rows = export(tmp_path, SPEAKS_AND_CALLS, *others)

    assert len(rows) == 4
    assert all(converter()(row)["_response"] for row in rows)


def test_two_sides_that_do_not_take_turns_are_dropped_by_the_converter() -> None:
    turns = [("human", "a"), ("gpt", "I look."), ("function_call", "{}"), ("observation", "x")]
    row = {"conversations": [{"from": who, "value": value} for who, value in turns], "tools": ""}

    assert converter()(row)["_response"] == []
