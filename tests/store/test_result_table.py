"""Tables of results on both databases: order, pages, filters, counts and groups."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.store import Run, Store, TableQuery
from assay.types import EvaluateResult, Metric, ModelCall, Sample, Status, Trajectory, Usage
from make import asked, said
from store_runs import broken, record, spec


def row(index: int, score: float | None = 1.0, **fields: Any) -> Sample:
    """A result with a dataset row, tokens and seconds that grow with the index."""
    usage = Usage(input_tokens=100 + index, output_tokens=10, cost_usd=index / 1000)
    shown = {"product": ["lamp", "desk"][index % 2], "price": str(10 * index), "sold": index > 2}
    judged = (
        EvaluateResult(reason="unclear")
        if score is None
        else EvaluateResult(
            score=score, reason=f"because {index}", metrics={"tone": Metric(score=score / 2)}
        )
    )
    return Sample(
        id=f"s{index}",
        index=index,
        input={"question": f"Question {index}?", **shown, **fields},
        prompt=f"Question {index}?",
        ground_truth=f"truth {index}",
        trajectory=Trajectory(
            messages=[asked(f"Question {index}?"), said(f"Answer {index} with 100 % and a_b")],
            calls=[ModelCall(usage=usage, latency_s=float(index % 3))],
            duration=float(index % 3),
        ),
        score=judged,
        status=Status.COMPLETED,
    )


@pytest.fixture
def run(store: Store) -> Run:
    """Six results, of which one is unscored, and one sample that failed."""
    opened = store.start_run(spec(total=7))
    scores = [1.0, 0.25, None, 0.5, 0.25, 1.0]
    record(opened, [row(index, score) for index, score in enumerate(scores)])
    record(opened, [broken(6, "no answer", input={"product": "rug"})])
    return opened


def ids(run: Run, query: TableQuery, *, size: int = 100) -> list[str]:
    """The ids of all pages, forwards; that backwards they are the same is checked here."""
    pages, cursor = [], None
    while True:
        page = run.table().read_page(query, size=size, after=cursor)
        pages.append([each.sample_id for each in page.rows])
        if page.next is None:
            break
        cursor = page.next
    back = page.previous
    for expected in reversed(pages[:-1]):
        page = run.table().read_page(query, size=size, before=back)
        assert [each.sample_id for each in page.rows] == expected
        back = page.previous
    assert back is None
    return [each for one in pages for each in one]


ORDERS = {
    "position": "s0 s1 s2 s3 s4 s5 s6",
    "score": "s1 s4 s3 s0 s5 s2 s6",
    "seconds": "s0 s3 s1 s4 s2 s5 s6",
    "tokens": "s0 s1 s2 s3 s4 s5 s6",
    "price": "s0 s1 s2 s3 s4 s5 s6",
    "product": "s1 s3 s5 s0 s2 s4 s6",
    "metric.tone": "s1 s4 s3 s0 s5 s2 s6",
    "reason": "s6 s0 s1 s3 s4 s5 s2",
    "label": "s0 s1 s2 s3 s4 s5 s6",
}


def test_pages_follow_each_other_in_every_order(run: Run) -> None:
    for sort, wanted in ORDERS.items():
        for size in (1, 3, 100):
            assert (sort, ids(run, TableQuery(sort=sort), size=size)) == (sort, wanted.split())


def test_unknown_values_come_last_in_both_directions(run: Run) -> None:
    assert ids(run, TableQuery(sort="score", descending=True), size=2) == (
        "s5 s0 s3 s4 s1 s2 s6".split()
    )


FILTERS = {
    "score < 1": "s1 s3 s4",
    "score = 1": "s0 s5",
    "score != 1": "s1 s2 s3 s4 s6",
    "score = unknown": "s2 s6",
    "score != unknown": "s0 s1 s3 s4 s5",
    "not score < 1": "s0 s2 s5 s6",
    "seconds > 1": "s2 s5",
    "tokens >= 114": "s4 s5",
    "input_tokens < 102": "s0 s1",
    "cost > 0.0035": "s4 s5",
    "metric.tone >= 0.25": "s0 s3 s5",
    'product = "lamp"': "s0 s2 s4",
    "product = lamp and score < 1": "s4",
    "product != lamp": "s1 s3 s5 s6",
    "product = rug": "s6",
    "product = unknown": "",
    "price > 25": "s3 s4 s5",
    "price = 30": "s3",
    "row.price <= 10": "s0 s1",
    "sold = true": "s3 s4 s5",
    "status = failed": "s6",
    "failed = endpoint": "s6",
    "failed != unknown": "s6",
    "id = s3": "s3",
    "answer ~ 'ANSWER 3'": "s3",
    'reason ~ "no answer"': "s6",
    '"100 %"': "s0 s1 s2 s3 s4 s5",
    '"100_%"': "",
    "a_b answer": "s0 s1 s2 s3 s4 s5",
    "axb": "",
    "truth (s1 or s4)": "s1 s4",
    "not (product = lamp or product = desk)": "s6",
    "`product` = `lamp`": "s0 s2 s4",
    "unheard = 1": "",
}


def test_filters_select_in_any_order_and_are_counted(run: Run) -> None:
    for text, wanted in FILTERS.items():
        assert (text, ids(run, TableQuery(text), size=2)) == (text, wanted.split())
        by_score = ids(run, TableQuery(text, sort="score", descending=True))
        assert (text, sorted(by_score)) == (text, wanted.split())
        assert (text, run.table().count_rows(text)) == (text, len(wanted.split()))


def test_a_filter_is_data_and_never_sql(run: Run) -> None:
    for text in ('id = "\' OR 1=1 --"', "`x') OR 1=1 --` = 1", "\"%' OR ''='\"", "row.? = 1"):
        assert run.table().count_rows(text) == 0


def test_groups_have_counts_and_means(run: Run) -> None:
    groups, more = run.table().group_rows("product")

    assert not more
    assert [(each.value, each.results, each.scored, each.failed) for each in groups] == [
        ("desk", 3, 3, 0),
        ("lamp", 3, 2, 0),
        ("rug", 1, 0, 1),
    ]
    assert groups[0].mean == pytest.approx((0.25 + 0.5 + 1.0) / 3)
    assert groups[2].mean is None


def test_groups_respect_the_filter(run: Run) -> None:
    groups, _ = run.table().group_rows("score", "product = lamp")

    assert {each.value: each.results for each in groups} == {1.0: 1, 0.25: 1, None: 1}


def test_all_rows_come_page_by_page(store: Store) -> None:
    opened = store.start_run(spec(total=45))
    record(opened, [row(index) for index in range(45)])

    assert [each.index for each in opened.table().rows(TableQuery(sort="tokens"))] == [*range(45)]


def test_rows_have_texts_and_fields(run: Run) -> None:
    found = run.table().read_page(TableQuery("id = s1")).rows[0]

    assert (found.label, found.answer) == ("Question 1?", "Answer 1 with 100 % and a_b")
    assert (found.expected, found.reason) == ("truth 1", "because 1")
    assert found.fields["product"] == "desk"
    assert found.metrics == {"tone": 0.125}
    assert found.score == 0.25


def test_the_columns_of_the_dataset_are_known(run: Run) -> None:
    assert run.table().read_field_names() == ["question", "product", "price", "sold"]


def test_neighbours_are_those_of_the_order_and_the_filter(run: Run) -> None:
    table, keys = run.table(), {each.sample_id: each.key for each in run.results()}

    assert table.find_neighbours(keys["s3"], TableQuery(sort="score")) == (keys["s4"], keys["s0"])
    assert table.find_neighbours(keys["s1"], TableQuery("score < 1")) == (None, keys["s3"])
    assert table.find_neighbours(keys["s0"], TableQuery("score < 1")) == (None, None)


def test_rows_of_older_versions_are_read_from_their_bodies(run: Run) -> None:
    assert run.table().has_excerpts()
    with run._database.write_transaction() as transaction:
        transaction.execute("DELETE FROM assay_excerpt")
        transaction.execute("UPDATE assay_attempt SET label = NULL, fields = NULL")

    rows = run.table().read_page(TableQuery()).rows

    assert not run.table().has_excerpts()
    assert [each.label for each in rows][:2] == ["Question 0?", "Question 1?"]
    assert rows[1].fields["product"] == "desk"
    assert rows[6].reason == "TimeoutError: no answer"


def test_a_sample_that_failed_and_succeeded_later_is_listed_once(store: Store) -> None:
    run = store.start_run(spec(total=1))
    record(run, [broken(0)])
    record(run, [row(0)])

    assert ids(run, TableQuery(sort="score")) == ["s0"]
    assert run.table().count_rows("status = failed") == 0


def test_an_invalid_cursor_is_refused(run: Run) -> None:
    for cursor in ("x", "W10", "WzFd", "WzksMSwyLDNd", "WzAsMV0", "A" * 4000, "WzAsW10sMSwyXQ"):
        with pytest.raises(ConfigError, match="the cursor of the page is invalid"):
            run.table().read_page(TableQuery(), after=cursor)


def test_pages_have_a_limit(run: Run) -> None:
    for size in (0, -1, 501):
        with pytest.raises(ConfigError, match="1 to 500 rows"):
            run.table().read_page(TableQuery(), size=size)


def test_rows_written_while_paging_do_not_repeat_others(store: Store) -> None:
    run = store.start_run(spec(total=4))
    record(run, [row(0), row(2)])
    first = run.table().read_page(TableQuery(), size=1)

    record(run, [row(1), row(3)])
    rest = run.table().read_page(TableQuery(), size=10, after=first.next)

    assert [each.sample_id for each in (*first.rows, *rest.rows)] == ["s0", "s1", "s2", "s3"]
