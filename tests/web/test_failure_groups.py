"""Groups of bad results: which results are bad, and what groups them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.runner import read_summary
from assay.store import Store
from assay.types import EvaluateResult, Message, Sample, Status, ToolCall, Trajectory
from assay.web import failure_groups
from assay.web.failure_groups import (
    BadGroup,
    BadResults,
    BadSample,
    GroupedBy,
    find_bad_results,
    is_tool_error,
    list_tool_errors,
)
from make import said
from recorded_pages import RecordedPages, record_run


def analyse(store: Store, run: str) -> BadResults:
    return find_bad_results(store.run(run), read_summary(store.run(run)))


def test_failures_and_low_scores_are_grouped_by_reason(
    page_store: Store, pages: RecordedPages
) -> None:
    found = analyse(page_store, pages.changed)

    sizes = {key: len(group.samples) for key, group in found.groups.items()}
    assert (found.failed, found.worse, found.best) == (3, 10, 1.0)
    assert sizes == {
        ("failure", "agent: TimeoutError: no answer within N s"): 2,
        ("failure", "endpoint: TimeoutError: no answer within N s"): 1,
        ("reason", "contradicts policy §N: N days, not N"): 10,
        ("metric", "policy"): 10,
        ("metric", "tone"): 10,
    }
    assert found.ungrouped == 0


def test_tool_errors_are_found_in_transcripts(tmp_path: Path) -> None:
    call = ToolCall(id="a", name="search", arguments={})
    failed = Message(
        role="tool", tool_call_id="a", content="no file 'x'\nat line 3", details={"failed": True}
    )
    sample = Sample(
        id="q",
        prompt="Why?",
        trajectory=Trajectory(messages=[said(None, call), failed, said("Sorry.")]),
        score=EvaluateResult(score=0.0),
        status=Status.COMPLETED,
    )
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", [sample])
        found = analyse(store, "a")

    assert ("tool", "search: no file '…'") in found.groups
    assert ("reason", "no reason given") in found.groups


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"is_error": True}, True),
        ({"status": "error"}, True),
        ({"exit_code": 2}, True),
        ({"exit_code": 0, "failed": False}, False),
        ({"exit_code": True}, False),
        (None, False),
    ],
)
def test_recorded_details_mark_a_failed_tool(
    details: dict[str, object] | None, expected: bool
) -> None:
    assert is_tool_error(Message(role="tool", content="x", details=details)) is expected


def test_an_unmarked_tool_answer_is_not_an_error() -> None:
    assert list_tool_errors([Message(role="tool", content="error: no")]) == []


def test_results_beyond_the_limit_are_counted(
    page_store: Store, pages: RecordedPages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failure_groups, "MAX_RESULTS_GROUPED", 5)

    found = analyse(page_store, pages.changed)

    assert (len(found.samples), found.ungrouped) == (5, 8)


class _CountedGroups(dict[tuple[GroupedBy, str], BadGroup]):
    """Counts the groups that are looked at one after the other."""

    looked_at = 0

    def __iter__(self) -> Iterator[tuple[GroupedBy, str]]:
        for key in super().__iter__():
            self.looked_at += 1
            yield key


def bad_sample(index: int) -> BadSample:
    return BadSample("a", f"key-{index}", f"q{index}", 0, "Why?", 0.0, None, f"reason {index}")


def test_many_different_reasons_are_grouped_without_looking_at_each_other() -> None:
    groups = _CountedGroups()
    found = BadResults(failed=0, worse=5000, best=1.0, groups=groups)

    for index in range(5000):
        found.add("reason", f"reason {index}", bad_sample(index))
        found.add("metric", "tone", bad_sample(index))

    assert groups.looked_at == 0
    assert len(groups[("metric", "tone")].samples) == 5000
    assert len(groups) + found.ungrouped == 5001


def test_a_result_beyond_the_limit_of_groups_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure_groups, "_MAX_GROUPS_OF_A_KIND", 2)
    found = BadResults(failed=0, worse=1, best=1.0)

    for name in ("a", "b", "c", "d", "e"):
        found.add("metric", name, bad_sample(0))

    assert (list(found.groups), found.ungrouped) == ([("metric", "a"), ("metric", "b")], 1)


def grade_all(*scores: float) -> list[Sample]:
    return [
        Sample(
            id=f"q{index}",
            prompt="Why?",
            score=EvaluateResult(score=score),
            status=Status.COMPLETED,
        )
        for index, score in enumerate(scores)
    ]


def test_high_scores_are_bad_where_low_ones_are_good(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", grade_all(0.0, 0.3, 1.0), config={"direction": "min"})
        found = analyse(store, "a")

    assert (found.worse, found.best, found.low_is_good) == (2, 0.0, True)
    assert [sample.score for sample in found.samples] == [1.0, 0.3]


def test_a_rounding_error_below_the_best_score_is_not_bad(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.db") as store:
        record_run(store, "a", grade_all(1.0, 1.0 - 2**-53))
        found = analyse(store, "a")

    assert (found.worse, found.samples) == (0, [])
