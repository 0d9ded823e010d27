"""The tools of a sample: where they are looked for, and the one form they are written in."""

import json
from typing import Any

import pytest

from assay.errors import WireError
from assay.formats.conversion import Dropped
from assay.formats.tool_schemas import (
    find_tools,
    read_tools,
    report_unknown_tools,
    write_tools_json,
)
from assay.types import Sample, ToolSpec, Trajectory
from make import called, said

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
OPENAI = {"type": "function", "function": {"name": "add", "parameters": SCHEMA}}
PLAIN = {"name": "add", "parameters": SCHEMA}


@pytest.mark.parametrize(
    "given",
    [
        [OPENAI],
        [PLAIN],
        json.dumps([OPENAI]),
        [ToolSpec(name="add", parameters=SCHEMA)],
    ],
)
def test_each_form_is_written_as_openai_writes_it(given: Any) -> None:
    (tool,) = read_tools(given, "tools")

    assert tool["type"] == "function"
    assert tool["function"]["name"] == "add"
    assert tool["function"]["parameters"] == SCHEMA


@pytest.mark.parametrize(
    "sample",
    [
        Sample(trajectory=Trajectory(tools=[PLAIN]), input={"tools": [{"name": "other"}]}),
        Sample(input={"tools": write_tools_json([OPENAI])}),
        Sample(metadata={"tools": [OPENAI]}),
    ],
)
def test_tools_are_found_where_they_were_recorded(sample: Sample) -> None:
    assert [tool["function"]["name"] for tool in find_tools(sample)] == ["add"]


def test_a_sample_without_tools_has_none() -> None:
    assert find_tools(Sample(prompt="hi")) == []


@pytest.mark.parametrize("given", ["{", 7, [7], [{"description": "no name"}]])
def test_what_is_no_list_of_tools_is_refused(given: Any) -> None:
    with pytest.raises(WireError):
        read_tools(given, "tools")


def test_calls_of_tools_that_nobody_knows_are_reported() -> None:
    dropped: list[Dropped] = []

    report_unknown_tools([said(None, called("add"))], [], dropped)
    report_unknown_tools([said("no calls")], [], dropped)
    report_unknown_tools([said(None, called("add"))], [OPENAI], dropped)

    assert [loss.where for loss in dropped] == ["tools"]
