"""The history of an evaluation: intervals, significant changes, threshold, and large runs."""

from pathlib import Path

import pytest

from assay.store import Store
from assay.types import EvaluateResult, Sample, Status
from assay.web import ViewServer, history_page
from assay.web.history_page import HistoryView, read_history
from page_requests import ask, ask_json, build_request
from recorded_pages import RecordedPages, record_run


def graded(count: int, right: int) -> list[Sample]:
    return [
        Sample(
            id=f"q{index}",
            prompt="Why?",
            score=EvaluateResult(score=float(index < right)),
            status=Status.COMPLETED,
            metadata={"test": "test_a", "threshold": 0.75},
        )
        for index in range(count)
    ]


def record_history(store: Store, rights: list[int], count: int = 40) -> None:
    for number, right in enumerate(rights):
        config = {"agent": {"name": f"m{number % 2}"}, "commit": f"{number:040x}"}
        record_run(store, f"run-{number}", graded(count, right), name="eval", config=config)


def read(store: Store, **given: str) -> HistoryView:
    return read_history(store, build_request(("name", "eval"), *given.items()))


def test_each_run_is_a_point_with_its_interval_and_commit(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_history(store, [30, 31, 10])
        view = read(store)

    assert [point.run for point in view.points] == ["run-0", "run-1", "run-2"]
    first = view.points[0]
    assert first.mean == 0.75
    assert first.low is not None
    assert first.high is not None
    assert first.low < 0.75 < first.high
    assert first.commit == "0" * 40
    assert view.threshold == 0.75


def test_only_significant_changes_are_marked(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_history(store, [30, 31, 10])
        view = read(store)

    assert view.points[0].change is None
    assert [point.mark for point in view.score_curve] == [None, None, "worse"]
    changes = [point.change for point in view.points[1:]]
    assert [change.previous for change in changes if change] == ["run-0", "run-1"]
    link = view.score_curve[2].link
    assert link == "/compare?run=run-1&run=run-2"


def test_p_values_are_adjusted_for_the_changes_on_the_page(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        # A drop of six samples is significant by itself, and not among ten changes.
        record_history(store, [20, 14])
        alone = read(store).points[-1].change
    with Store.open(tmp_path / "t.db") as store:
        record_history(store, [20, 14] + [21, 15] * 5)
        among = [point.change for point in read(store).points[1:]]

    assert alone is not None
    assert alone.conclusion == "worse"
    assert {change.conclusion for change in among if change} == {"no difference shown"}


def test_one_agent_can_be_chosen(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_history(store, [30, 31, 10])
        view = read(store, agent="m0")

    assert view.agents == ("m0", "m1")
    assert [point.run for point in view.points] == ["run-0", "run-2"]


def test_what_is_too_large_for_one_request_is_counted_and_computed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_page, "_MAX_RESULTS_READ", 10)
    with Store.open(tmp_path / "s.db") as store:
        record_history(store, [30, 31])
        counts = [read(store).not_computed for _ in range(4)]

    assert counts[0] > 0
    assert counts[-1] == 0


def test_the_page_lists_evaluations_first(viewer: ViewServer, pages: RecordedPages) -> None:
    listed = ask_json(viewer, "/api/history")["evaluations"]
    status, _, page = ask(viewer, "/history")

    assert {"support-bot", "sums"} <= {each["name"] for each in listed}
    assert next(each for each in listed if each["name"] == "support-bot")["runs"] == 2
    assert status == 200
    assert "/history?name=support-bot" in page


def test_the_chart_has_a_table_behind_it(viewer: ViewServer, pages: RecordedPages) -> None:
    _, _, page = ask(viewer, "/history?name=support-bot")

    assert 'role="group"' in page
    assert "threshold 0.850" in page
    assert f"/compare?run={pages.baseline}&amp;run={pages.changed}" in page


def test_a_run_leads_to_the_history_of_its_evaluation(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    view = ask_json(viewer, f"/api/history?run={pages.changed}")

    assert view["name"] == "support-bot"
    assert [point["run"] for point in view["points"]] == [pages.baseline, pages.changed]


def test_an_unknown_evaluation_is_not_found(viewer: ViewServer) -> None:
    assert ask(viewer, "/history?name=nothing")[0] == 404


def test_runs_without_results_are_not_counted_as_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_page, "_MAX_POINTS", 2)
    with Store.open(tmp_path / "s.db") as store:
        record_history(store, [30, 31, 32])
        for number in range(4):
            record_run(store, f"empty-{number}", [], name="eval")
        view = read(store)

    assert [point.run for point in view.points] == ["run-1", "run-2"]
    assert view.older == 1


def test_runs_beyond_the_newest_are_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        record_history(store, [3, 4], count=4)
        record_run(store, "other", graded(4, 2), name="other")
        uncut = ask(viewer, "/history").body
        monkeypatch.setattr(history_page, "_MAX_RUNS_READ", 2)
        listed, one = ask(viewer, "/history").body, ask(viewer, "/history?name=eval").body
        monkeypatch.setattr(history_page, "_MAX_RUNS_READ", 1)
        missing = ask(viewer, "/api/history?run=run-1").json["error"]

    assert "runs of the store are read here" not in uncut
    assert "Only the newest 2 runs of the store are read here" in listed
    assert "Only the newest 2 runs of the store are read here" in one
    assert missing == "none of the newest 1 runs has the name 'eval'"


def test_imported_sessions_have_no_link_to_a_history(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store, ViewServer(store) as viewer:
        record_run(store, "run", graded(2, 1), name="eval")
        record_run(store, "sessions", graded(2, 1), name="in", config={"ingest": "codex"})

        assert 'href="/history?run=run"' in ask(viewer, "/run/run").body
        assert "/history?run=" not in ask(viewer, "/run/sessions").body


def test_a_fall_is_better_where_low_scores_are_good(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for number, (right, config) in enumerate(
            [(40, {"direction": "min"}), (2, {"direction": "min"}), (40, {})]
        ):
            record_run(store, f"run-{number}", graded(40, right), name="eval", config=config)
        view = read(store)

    changes = [point.change for point in view.points]
    assert changes[1] is not None
    assert changes[1].conclusion == "better"
    # The last run is scored the other way round: neither better nor worse.
    assert changes[2] is None
