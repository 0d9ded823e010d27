"""Logs of Inspect, made and read by Inspect itself."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from assay.errors import DatasetError, MissingExtra
from assay.sessions import SessionChoice
from assay.sessions.inspect_logs import _count_unknown_inspect_kinds, read_inspect
from assay.sessions.transcripts import Conversation
from assay.types import Sample


def test_a_missing_package_is_named_before_anything_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai.log", None)
    monkeypatch.setitem(sys.modules, "inspect_ai", None)

    with pytest.raises(MissingExtra, match=r"needs the package `inspect_ai`"):
        read_inspect("nowhere")


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log of two questions, one of which needs a tool."""
    inspect_ai: Any = import_module("inspect_ai")
    dataset: Any = import_module("inspect_ai.dataset")
    model: Any = import_module("inspect_ai.model")
    solver: Any = import_module("inspect_ai.solver")
    lookup = order_tool(import_module("inspect_ai.tool"))

    outputs = [
        model.ModelOutput.for_tool_call("mockllm/model", "lookup", {"order": 7}),
        model.ModelOutput.from_content("mockllm/model", "In Bremen."),
        model.ModelOutput.from_content("mockllm/model", "I do not know."),
    ]
    for output in outputs:
        # Without it the mock counts tokens, with a vocabulary that it loads from the network.
        output.usage = model.ModelUsage(input_tokens=10, output_tokens=3, total_tokens=13)
    task = inspect_ai.Task(
        dataset=[
            dataset.Sample(id="where", input="Where is order 7?", target="Bremen"),
            dataset.Sample(id="sum", input="What is 2+2?", target="4"),
        ],
        solver=[
            solver.system_message("Be brief."),
            solver.use_tools(lookup()),
            solver.generate(),
        ],
        scorer=import_module("inspect_ai.scorer").includes(),
        name="orders",
    )
    folder = tmp_path_factory.mktemp("logs")
    inspect_ai.eval(
        task,
        model=model.get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(folder),
        display="none",
        max_samples=1,
    )
    return folder


def order_tool(tools: Any) -> Any:
    def lookup() -> Any:
        async def execute(order: int) -> str:
            """Find an order.

            Args:
                order: Its number.
            """
            return f"order {order} is in Bremen"

        return execute

    return tools.tool(lookup)


def by_id(folder: Path) -> dict[str, Sample]:
    return {sample.id: sample for sample in read_inspect(folder)}


@pytest.mark.filterwarnings("default")
def test_a_log_reads_as_samples_with_scores(logs: Path) -> None:
    samples = by_id(logs)

    assert set(samples) == {"orders/where/1", "orders/sum/1"}
    right, wrong = samples["orders/where/1"], samples["orders/sum/1"]
    assert [m.role for m in right.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert right.messages[2].tool_calls[0].arguments == {"order": 7}
    assert right.messages[3].text == "order 7 is in Bremen"
    assert (right.reward, wrong.reward) == (1.0, 0.0)
    assert right.score is not None
    assert right.score.metrics["includes"].score == 1.0
    assert (right.ground_truth, right.status) == ("Bremen", "completed")
    assert right.input["epoch"] == 1


@pytest.mark.filterwarnings("default")
def test_usage_comes_from_the_model_events(logs: Path) -> None:
    trajectory = by_id(logs)["orders/where/1"].trajectory

    assert trajectory is not None
    usage = trajectory.calls[0].usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 3)
    assert trajectory.calls[0].finish_reason == "tool_calls"


@pytest.mark.filterwarnings("default")
def test_samples_survive_being_written(logs: Path) -> None:
    for sample in by_id(logs).values():
        assert Sample.from_json(sample.to_json()) == sample


@pytest.mark.filterwarnings("default")
def test_samples_are_chosen_and_broken_logs_reported(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.eval").write_bytes(b"not a zip")
    chosen = read_inspect(logs, SessionChoice(sessions=frozenset({"orders/sum/1"})))
    broken = read_inspect(tmp_path)

    assert [sample.id for sample in chosen] == ["orders/sum/1"]
    assert list(broken) == []
    assert "the file is not a readable Inspect log" in str(broken.reading.skipped[0].problem)


def test_places_without_logs_are_refused(tmp_path: Path) -> None:
    import_module("inspect_ai")

    with pytest.raises(DatasetError, match="the folder contains no Inspect logs"):
        list(read_inspect(tmp_path))
    with pytest.raises(DatasetError, match="the file or folder does not exist"):
        list(read_inspect(tmp_path / "none"))


@pytest.fixture
def log_text(logs: Path, tmp_path: Path) -> dict[str, Any]:
    """The log as the JSON that Inspect writes where it is asked to."""
    api: Any = import_module("inspect_ai.log")
    (file,) = logs.glob("*.eval")
    api.write_eval_log(api.read_eval_log(str(file)), str(tmp_path / "whole.json"))
    text: dict[str, Any] = json.loads((tmp_path / "whole.json").read_text("utf-8"))
    (tmp_path / "whole.json").unlink()
    return text


@pytest.mark.filterwarnings("default")
def test_samples_that_the_header_does_not_list_are_read(
    log_text: dict[str, Any], tmp_path: Path
) -> None:
    log_text["eval"]["dataset"]["sample_ids"] = ["where"]
    (tmp_path / "log.json").write_text(json.dumps(log_text))

    assert set(by_id(tmp_path)) == {"orders/where/1", "orders/sum/1"}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("broken", "left"), [("where", "sum"), ("sum", "where")])
def test_one_broken_sample_does_not_take_the_others_with_it(
    broken: str, left: str, logs: Path, tmp_path: Path
) -> None:
    (file,) = logs.glob("*.eval")
    with ZipFile(file) as whole, ZipFile(tmp_path / "log.eval", "w") as copy:
        for name in whole.namelist():
            cut = name == f"samples/{broken}_epoch_1.json"
            copy.writestr(name, b"{" if cut else whole.read(name))
    stream = read_inspect(tmp_path)

    assert [sample.id for sample in stream] == [f"orders/{left}/1"]
    assert [each.session_id for each in stream.reading.skipped] == [f"orders/{broken}/1"]


@pytest.mark.filterwarnings("default")
def test_logs_of_an_untested_version_are_read_and_noted(
    log_text: dict[str, Any], tmp_path: Path
) -> None:
    log_text["eval"]["packages"] = {"inspect_ai": "99.0.0"}
    (tmp_path / "log.json").write_text(json.dumps(log_text))
    stream = read_inspect(tmp_path)

    assert len(list(stream)) == 2
    assert stream.reading.untested_versions == {"99.0.0": 2}


@pytest.mark.filterwarnings("default")
def test_tested_logs_hold_nothing_unknown(logs: Path) -> None:
    stream = read_inspect(logs)

    assert list(stream)
    assert not stream.reading.unknown_kinds
    assert not stream.reading.untested_versions


def test_kinds_that_this_reader_does_not_know_are_counted() -> None:
    talk = Conversation()
    part, event = SimpleNamespace(type="hologram"), SimpleNamespace(event="portal")
    message = SimpleNamespace(role="oracle", content=[part, SimpleNamespace(type="text")])

    _count_unknown_inspect_kinds(talk, SimpleNamespace(messages=[message], events=[event, event]))

    assert talk.unknown_kinds == {
        "message of role oracle": 1,
        "content hologram": 1,
        "event portal": 2,
    }
