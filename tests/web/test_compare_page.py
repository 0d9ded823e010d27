"""The page of a comparison, as JSON and as HTML."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from assay.cli import main
from assay.errors import ConfigError
from assay.store import SampleLabel, Store
from assay.types import EvaluateResult, Metric, Sample, Status
from assay.web import ViewServer
from assay.web.compare_page import read_comparison
from assay.web.static_report import render_static_report
from make import asked, said, sample
from page_requests import ask, ask_json, build_request
from recorded_pages import HOSTILE_TEXTS, RecordedPages, record_run, ticket


def choose(pages: RecordedPages) -> str:
    return f"run={pages.baseline}&run={pages.changed}"


def test_the_flipped_samples_come_first_with_both_answers(
    viewer: ViewServer, pages: RecordedPages
) -> None:
    view = ask_json(viewer, f"/api/compare?{choose(pages)}")

    assert [run["id"] for run in view["runs"]] == [pages.baseline, pages.changed]
    assert view["show"] == "flipped"
    assert (
        view["counts"]["flipped"] == view["counts"]["regressions"] + view["counts"]["improvements"]
    )
    first = view["samples"][0]
    old, new = first["answers"]
    assert (first["change"], old["score"], new["score"]) == ("worse", 1.0, 0.0)
    assert (old["answer"], new["answer"]) == (
        "Yes, within 30 days.",
        "Yes, returns are accepted within 60 days.",
    )
    assert {"kind": "old", "text": "30", "left_out": 0} in old["parts"]
    assert {"kind": "new", "text": "60", "left_out": 0} in new["parts"]


def test_the_json_has_the_shape_of_the_command(
    viewer: ViewServer, pages: RecordedPages, page_store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ask_json(viewer, f"/api/compare?{choose(pages)}")["comparisons"][0]
    words = ["compare", pages.baseline, pages.changed, "--limit", "10", "--json"]
    main([*words, "--store", page_store.where])
    printed = json.loads(capsys.readouterr().out)

    assert found.keys() - printed.keys() == {"adjusted_p"}
    assert printed.keys() <= found.keys()
    same = printed.keys() - {"answers"}
    assert {key: found[key] for key in same} == {key: printed[key] for key in same}


def test_missing_samples_are_counted(viewer: ViewServer, pages: RecordedPages) -> None:
    view = ask_json(viewer, f"/api/compare?{choose(pages)}&show=missing")

    assert view["counts"]["missing"] == 3
    assert [each["answers"][1]["failed"] for each in view["samples"]].count(None) == 0
    assert view["comparisons"][0]["not_judged_in_b"]["count"] == 3


def test_pages_continue_after_the_last_sample(viewer: ViewServer, pages: RecordedPages) -> None:
    first = ask_json(viewer, f"/api/compare?{choose(pages)}&show=all")
    second = ask_json(viewer, f"/api/compare?{choose(pages)}&show=all&after={first['next']}")

    names = [each["id"] for view in (first, second) for each in view["samples"]]
    assert len(names) == len(set(names)) == 40
    assert second["next"] is None


def test_three_runs_are_compared_with_the_first(viewer: ViewServer, pages: RecordedPages) -> None:
    runs = f"{choose(pages)}&run={pages.repeats}"
    view = ask_json(viewer, f"/api/compare?{runs}")
    status, _, page = ask(viewer, f"/compare?{runs}")

    assert [each["b"] for each in view["comparisons"]] == [pages.changed, pages.repeats]
    assert view["comparisons"][1]["missing_in_b"]["count"] == 40
    assert status == 200
    assert "Holm" in page


def test_the_oldest_run_is_the_baseline_if_asked(viewer: ViewServer, pages: RecordedPages) -> None:
    path = f"/api/compare?run={pages.changed}&run={pages.baseline}"

    given = ask_json(viewer, path)["runs"][0]["id"]
    ordered = ask_json(viewer, f"{path}&order=oldest")["runs"][0]["id"]

    assert (given, ordered) == (pages.changed, pages.baseline)


def test_without_runs_the_page_offers_them(viewer: ViewServer, pages: RecordedPages) -> None:
    status, _, page = ask(viewer, "/compare")

    assert status == 200
    assert f'value="{pages.baseline}"' in page


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("run=tickets-1&run=nothing", 404, "does not exist"),
        ("run=tickets-1&run=tickets-2&show=nothing", 400, "show must be one of"),
        ("&".join(f"run=r{index}" for index in range(7)), 400, "at most 6 runs"),
    ],
)
def test_a_wrong_request_is_explained(
    query: str, status: int, words: str, viewer: ViewServer
) -> None:
    found, _, page = ask(viewer, f"/compare?{query}")

    assert found == status
    assert words in page


def test_the_prompts_are_compared_word_by_word(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        for run, text in {"a": "Answer. Be friendly.", "b": "Answer. Be brief."}.items():
            config = {"agent": {"name": run}, "prompt": {"text": text}}
            record_run(store, run, [ticket(1)], config=config)
        view = read_comparison(store, build_request(("run", "a"), ("run", "b")))

    assert view.prompts[0] is not None
    assert [(part.kind, part.text) for part in view.prompts[0]] == [
        ("same", "Answer. Be "),
        ("old", "friendly"),
        ("new", "brief"),
        ("same", "."),
    ]
    assert [run.title for run in view.runs] == ["a", "b"]


def test_of_repeats_the_answer_that_shows_the_change_is_chosen(tmp_path: Path) -> None:
    def answer(text: str, score: float) -> Sample:
        result = EvaluateResult(score=score)
        return sample(
            asked("Why?"), said(text), id="q", index=0, score=result, status=Status.COMPLETED
        )

    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [(answer("bad", 0.0), 0), (answer("good", 1.0), 1)], repeats=2)
        record_run(store, "b", [(answer("worst", 0.0), 0), (answer("low", 0.1), 1)], repeats=2)
        view = read_comparison(store, build_request(("run", "a"), ("run", "b")))

    old, new = view.samples[0].answers
    assert (old.answer, old.repeat, old.scores) == ("good", 1, (0.0, 1.0))
    assert (new.answer, new.score) == ("worst", 0.05)


def test_a_long_answer_is_cut_with_a_note(tmp_path: Path) -> None:
    def answer(text: str, score: float) -> Sample:
        result = EvaluateResult(score=score)
        return sample(asked("Why?"), said(text), id="q", score=result, status=Status.COMPLETED)

    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [answer("short", 1.0)])
        record_run(store, "b", [answer("long " * 10_000, 0.0)])
        with ViewServer(store) as viewer:
            view = ask_json(viewer, "/api/compare?run=a&run=b")
            _, _, page = ask(viewer, "/compare?run=a&run=b")

    assert view["samples"][0]["answers"][1]["left_out"] == 30_000
    assert "30,000 more characters are not shown here" in page


def test_labels_of_people_are_shown(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [ticket(1)])
        record_run(store, "b", [ticket(4, changed=True)])
        key = next(store.run("a").results()).key
        store.run("a").write_label(SampleLabel(key, verdict="fail", note="too short", author="Ann"))
        with ViewServer(store) as viewer:
            view = ask_json(viewer, "/api/compare?run=a&run=b&show=all")
            _, _, page = ask(viewer, "/compare?run=a&run=b&show=all")

    labels = [answer["label"] for each in view["samples"] for answer in each["answers"]]
    assert [label["verdict"] for label in labels if label] == ["fail"]
    assert "labelled fail" in page
    assert "too short" in page


def test_runs_on_different_scales_are_refused(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [ticket(1)], config={"bounds": [0, 10]})
        record_run(store, "b", [ticket(1)], config={})
        with pytest.raises(ConfigError, match="different scales"):
            read_comparison(store, build_request(("run", "a"), ("run", "b")))


def test_hostile_answers_stay_text(viewer: ViewServer, pages: RecordedPages) -> None:
    _, _, page = ask(viewer, f"/compare?run={pages.hostile}&run={pages.baseline}&show=all")

    assert HOSTILE_TEXTS[0] not in page
    assert "<img" not in page.lower()
    assert "\u202e" not in page


def test_a_rise_is_worse_where_low_scores_are_good(tmp_path: Path) -> None:
    def answer(text: str, score: float) -> Sample:
        result = EvaluateResult(score=score, reason=f"{text} {score}")
        return sample(asked("Why?"), said(text), id="q", score=result, status=Status.COMPLETED)

    with Store.open(tmp_path / "s.db") as store:
        config = {"direction": "min"}
        old = [(answer("kind", 0.0), 0), (answer("rude", 0.5), 1)]
        record_run(store, "a", old, repeats=2, config=config)
        new = [(answer("rude", 0.9), 0), (answer("kind", 0.8), 1)]
        record_run(store, "b", new, repeats=2, config=config)
        view = read_comparison(store, build_request(("run", "a"), ("run", "b")))
        with ViewServer(store) as viewer:
            _, _, page = ask(viewer, "/compare?run=a&run=b")

    assert view.samples[0].change == "worse"
    assert [each.answer for each in view.samples[0].answers] == ["kind", "rude"]
    assert view.comparisons[0]["answers"]["q"]["reason"] == "rude 0.9"
    assert '<span class="tag fail">↑ 0.850</span>' in page


def test_the_command_prints_and_writes_the_labels_of_people(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "s.db")
    with Store.open(path) as store:
        record_run(store, "a", [ticket(4)])
        record_run(store, "b", [ticket(4, changed=True)])
        key = next(store.run("b").results()).key
        label = SampleLabel(key, verdict="fail", note="60 days", author="Ann")
        written = store.run("b").write_label(label)
        view = read_comparison(store, build_request(("run", "a"), ("run", "b")))

    main(["compare", "a", "b", "--store", path])
    assert "new label   fail, by Ann: 60 days" in capsys.readouterr().out
    main(["compare", "a", "b", "--store", path, "--json"])
    found = json.loads(capsys.readouterr().out)["answers"]["ticket-4"]

    assert (found["old_label"], found["new_label"]) == (None, asdict(written))
    shown = view.model_dump(mode="json")
    assert shown["comparisons"][0]["answers"]["ticket-4"]["new_label"] == found["new_label"]
    assert shown["samples"][0]["answers"][1]["label"] == found["new_label"]


def test_a_run_is_not_compared_with_itself(viewer: ViewServer, pages: RecordedPages) -> None:
    twice = ask_json(viewer, f"/api/compare?run={pages.repeats}&run={pages.repeats[:-1]}")
    three = ask_json(viewer, f"/api/compare?{choose(pages)}&run={pages.baseline}")

    assert [run["id"] for run in twice["runs"]] == [pages.repeats]
    assert twice["comparisons"] == []
    assert len(three["comparisons"]) == 1


def test_a_tiny_p_value_is_never_shown_as_zero(tmp_path: Path) -> None:
    def graded(index: int, score: float) -> Sample:
        result = EvaluateResult(score=score, metrics={"tone": Metric(score=score)})
        return ticket(index).model_copy(update={"score": result})

    with Store.open(tmp_path / "s.db") as store:
        for number, score in enumerate((1.0, 0.5)):
            record_run(store, f"run-{number}", [graded(index, score) for index in range(30)])
        texts = [render_static_report(store, ["run-0", "run-1"])]
        with ViewServer(store) as viewer:
            for path in ("/compare?run=run-0&run=run-1", "/history?run=run-0", "/run/run-1"):
                texts.append(ask(viewer, path).body)

    counts = [text.split("<main", 1)[1].count("&lt; 0.0001") for text in texts]
    # The page of the comparison has one for the score and one for the metric.
    assert counts == [1, 2, 1, 1]
    assert not [text for text in texts if ">0.0000<" in text or ">0.000<" in text]
