"""Every page over records that are odd, but that a store takes: none of them may fail.

Scorers of users put anything into a result, trainings record any JSON as a metric, and another
version of assay stored other statistics and settings.
"""

import copy
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from markupsafe import escape

from assay.runner import read_summary
from assay.store import Store
from assay.types import Sample
from assay.web import ViewServer, write_static_report
from assay.web.page import encode_segment
from page_requests import Answer, ask
from recorded_pages import record_run, ticket

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    "text",
    "NaN",
    "",
    "x" * 3000,
    "\x00\x1b[2J\u202e",
    0,
    -1.5,
    1e308,
    10**400,
    [],
    [[]],
    [1, {"a": [None]}],
    {},
    {"": ""},
    {"a": {"b": None}},
)
_SETTINGS = (
    "agent bounds commit direction endpoint ingest prompt replay scorer training training_run "
    "training_step"
).split()
_TRAINING = {"prompts_per_step": 1, "group_size": 1, "zero_variance": "keep"}


def build_odd_sample(index: int, value: Any) -> Sample:
    """Build a sample with `value` wherever a store takes any JSON."""
    anywhere = {"evidence": value, "agreement": value, "split": value, "passed": value}
    opinion = {"judge": value, "rubric": value, "score": value, "met": value, "reason": value}
    listed = {
        "evidence": [value, {"quote": value}, {"quote": "Hello", "turns": [value]}],
        "opinions": [value, opinion],
        "verdicts": [value, opinion],
    }
    outcome = {"exit_code": value, "failed": value, "subagent": value, "status": value}
    call = {"id": "call_1", "name": "search", "arguments": {"query": value, "": [value]}}
    steps = [
        {"step_index": index, "base_reward": None, "control_plane_info": {"a": value}},
        {"step_index": "last", "base_reward": 1e308, "metrics": {"a": value}},
    ]
    names = "created project session subagents test threshold title training_step".split()
    return Sample.from_dict(
        {
            "id": f"odd-{index}",
            "index": index,
            "prompt": "Hello",
            "ground_truth": value,
            "input": {"question": "Hello", "odd": value, "nested": {"odd": value}},
            "metadata": dict.fromkeys(names, value),
            "status": "completed",
            "trajectory": {
                "messages": [
                    {"role": "user", "content": "Hello"},
                    {"role": "assistant", "content": "A moment.", "tool_calls": [call]},
                    {
                        "role": "tool",
                        "content": "none",
                        "tool_call_id": "call_1",
                        "details": outcome,
                    },
                    {"role": "assistant", "content": "Done."},
                ]
            },
            "score": {
                "score": 0.5,
                "reason": "turn 1 has 'Hello'",
                "judgement": value if index % 2 else {"judges": value, "votes": value},
                "metrics": {
                    "anywhere": {"score": None, "is_score_valid": False, **anywhere},
                    "listed": {"score": 0.1, **listed},
                    "": {"score": 1e100},
                },
                "step_outputs": steps,
                "trajectory_info": {"a": value},
            },
        }
    )


def list_settings(value: Any) -> Iterator[dict[str, Any]]:
    """Yield configurations of runs with `value` in them."""
    yield {**dict.fromkeys(_SETTINGS, value), "bounds": [value]}
    yield {
        "agent": {"name": value},
        "bounds": [value, value],
        "endpoint": {"provider": value, "model": value},
        "prompt": {"text": value},
        "training": {**_TRAINING, "zero_variance": value, "advantage": value},
    }


def list_old_summaries(store: Store, run_id: str) -> Iterator[str]:
    """Yield statistics as another version may have stored them."""
    yield from ("{}", "[]", "null", "", "not JSON", '{"score": null}', '{"score": {}}')
    known = json.loads(read_summary(store.run(run_id)).model_dump_json())
    for name in ("samples", "score", "metrics", "bounds"):
        for without in ({}, {name: None}, {name: "text"}):
            yield json.dumps({key: known[key] for key in known if key != name} | without)
    newer = copy.deepcopy(known)
    newer["score"]["median"] = newer["new"] = {"a": 1}
    yield json.dumps(newer)


@pytest.fixture(scope="module")
def odd_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store.open(tmp_path_factory.mktemp("odd") / "assay.db") as store:
        record_run(store, "usual", map(ticket, range(4)), name="usual")
        record_run(
            store,
            "samples",
            (build_odd_sample(*each) for each in enumerate(ODD_VALUES)),
            name="odd",
        )
        for number, config in enumerate(chain.from_iterable(map(list_settings, ODD_VALUES))):
            record_run(store, f"config-{number}", [ticket(1)], name="odd", config=config)
        for number, text in enumerate(list_old_summaries(store, "usual")):
            run = record_run(store, f"summary-{number}", [ticket(1), ticket(5)], name="summaries")
            run.keep_summary(text, run.totals)
        for number, created_at in enumerate(
            ("", "yesterday", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
        ):
            record_run(store, f"time-{number}", [ticket(1)], name="usual", created_at=created_at)
        training = record_run(
            store, "training", [ticket(1), ticket(2)], config={"training": _TRAINING}, finish=False
        )
        for number, value in enumerate(ODD_VALUES, start=1):
            training.record_step(number, {"kl": value, "entropy": value, "loss": [value]})
        training.finish("completed")
        record_run(
            store,
            "resampled",
            [ticket(1), ticket(2)],
            config={"training": {**_TRAINING, "zero_variance": "resample"}},
        )
        yield store


def list_paths(store: Store) -> Iterator[str]:
    """Yield the address of every page that shows something of a run."""
    yield from ("/", "/?q=odd", "/compare", "/history", "/sessions", "/certificates")
    yield from ("/history?name=odd", "/history?name=summaries", "/history?name=usual")
    for row in store.runs(limit=1000):
        run = encode_segment(row.id)
        yield from (f"/{page}/{run}" for page in ("run", "training"))
        yield from (f"/{page}?run={run}" for page in ("failures", "history", "sessions"))
        yield from (f"/run/{run}/labels", f"/run/{run}/table?group=product&sort=price")
        yield f"/compare?run=usual&run={run}"
        key = encode_segment(next(store.run(row.id).results()).key)
        yield f"/run/{run}/sample/{key}"
    for result in store.run("samples").results():
        sample = f"/run/samples/sample/{encode_segment(result.key)}"
        yield from (sample, f"{sample}?text=markdown&find=hello", f"{sample}/tokens")
    for step in range(1, len(ODD_VALUES) + 1):
        yield f"/training/training?step={step}"


def test_every_page_answers_for_odd_records(odd_store: Store) -> None:
    refused: dict[str, str] = {}
    answered = 0
    with ViewServer(odd_store) as viewer:
        for path in list_paths(odd_store):
            page = ask(viewer, path)
            data = ask(viewer, f"/api{'/runs' if path == '/' else path.replace('/?', '/runs?')}")
            assert page.status == data.status, path
            # Two runs may be on other scales, and most runs are no trainings.
            allowed = (200, 400) if path.startswith("/compare") else (200,)
            if path.startswith("/training") and "not a training" in page.body:
                allowed = (404,)
            if page.status not in allowed:
                refused[path] = _find_message(page)
            answered += data.status == 200
            json.loads(data.body, parse_constant=_refuse_constant)

    assert refused == {}
    assert answered > 300


def _find_message(answer: Answer) -> str:
    return f"{answer.status}: {answer.body.partition('<main')[2][:300]}"


def _refuse_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_a_metric_of_a_step_is_shown_as_it_was_recorded(odd_store: Store) -> None:
    with ViewServer(odd_store) as viewer:
        page = ask(viewer, "/training/training").body

    for shown in ("unknown", "true", '"text"', '"NaN"', "-1.5", "1e+308", "[]", "{}"):
        assert f'<td class="n" data-name="kl">{escape(shown)}</td>' in page


def test_a_training_of_another_version_shows_its_steps(odd_store: Store) -> None:
    with ViewServer(odd_store) as viewer:
        without_steps = ask(viewer, "/api/training/resampled").json

    assert without_steps["steps"] == []
    # None of the rollouts records its step.
    assert without_steps["unfinished_rollouts"] == 2


def test_statistics_of_another_version_are_computed_again(odd_store: Store) -> None:
    with ViewServer(odd_store) as viewer:
        runs = ask(viewer, "/api/runs?name=summaries").json["runs"]
        history = ask(viewer, "/api/history?name=summaries").json["points"]

    assert {run["mean"] for run in runs} == {0.7}
    assert None not in {point["low"] for point in history}


def test_a_report_is_written_of_odd_records(odd_store: Store, tmp_path: Path) -> None:
    target = tmp_path / "report.html"

    write_static_report(odd_store, ["samples", "config-0", "training", "summary-0"], target)

    assert "<h1" in target.read_text()
