"""Long outputs of tools: cut where asked, visibly, and nothing else with them."""

import pytest

from assay.errors import ConfigError
from assay.formats.output_limits import cut_outputs, cut_text
from assay.types import Message, Sample, Trajectory
from assay.types.message import DataBlock, TextBlock
from make import asked, said


def ran(content: object, **details: object) -> Message:
    fields = {"role": "tool", "name": "bash", "content": content, "details": details or None}
    return Message.model_validate(fields)


def of(*messages: Message, **metadata: object) -> Sample:
    return Sample(id="s", trajectory=Trajectory(messages=list(messages)), metadata=metadata)


def test_what_is_cut_says_how_much_is_missing() -> None:
    assert cut_text("0123456789", 4) == "0123… [6 more characters]"
    assert cut_text("0123", 4) == "0123"
    assert cut_text("0123", None) == "0123"


def test_only_outputs_of_tools_are_cut() -> None:
    sample, count = cut_outputs(of(asked("long question"), said("long answer"), ran("output")), 4)

    assert [message.text for message in sample.messages] == [
        "long question",
        "long answer",
        "outp… [2 more characters]",
    ]
    assert count == 1


def test_what_the_tool_noted_beside_its_output_is_cut_as_well() -> None:
    given = of(ran("ok", output="0123456789", exit_code=1, lines=["0123456789", 7]))

    sample, count = cut_outputs(given, 4)

    assert sample.messages[0].details == {
        "output": "0123… [6 more characters]",
        "exit_code": 1,
        "lines": ["0123… [6 more characters]", 7],
    }
    assert count == 1


def test_blocks_keep_their_kind() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAAAAAA"}}

    sample, _ = cut_outputs(of(ran([{"type": "text", "text": "0123456789"}, image])), 4)

    blocks = sample.messages[0].content
    assert isinstance(blocks, tuple)
    assert isinstance(blocks[0], TextBlock)
    assert blocks[0].text == "0123… [6 more characters]"
    assert isinstance(blocks[1], DataBlock)


def test_subagents_are_cut_with_their_parent() -> None:
    child = of(ran("0123456789")).to_dict()

    sample, count = cut_outputs(of(ran("01234"), subagents=[child]), 4)

    (below,) = sample.metadata["subagents"]
    assert Sample.from_dict(below).messages[0].text == "0123… [6 more characters]"
    assert count == 2
    assert child["trajectory"]["messages"][0]["content"] == "0123456789"


def test_a_sample_without_long_outputs_is_the_same() -> None:
    given = of(asked("a"), ran("ok"), ran(None))

    assert cut_outputs(given, 4) == (given, 0)
    assert cut_outputs(Sample(id="bare"), 4)[1] == 0


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="less than 1"):
        cut_outputs(of(), 0)
