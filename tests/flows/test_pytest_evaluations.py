"""Evaluations in whole pytest sessions: what a function may take and return, and how it is run."""

import importlib.util
import textwrap
from pathlib import Path

import pytest

from assay.store import Store
from evaluation_sessions import Session, call_pytest, run, write_tests

WORKING = """
    from assay.datasets import PromptTemplate

    ROWS = rows(a="yes", b="no")

    @pytest.fixture
    def judge():
        return lambda said, wanted: said == wanted

    @evaluation_test(samples=ROWS)
    def test_named(messages, ground_truth, **kwargs):
        assert messages[0].text == kwargs["question"]
        return kwargs["reply"] == ground_truth

    @evaluation_test(ROWS)
    def test_fixture(reply, ground_truth, judge, tmp_path, default=3):
        assert tmp_path.is_dir() and default == 3
        return EvaluateResult(
            score=float(judge(reply, ground_truth)), metrics={"m": Metric("m", 0.5)}
        )

    @evaluation_test(ROWS)
    async def test_async(sample, caplog):
        await asyncio.sleep(0)
        return 0.25

    @evaluation_test(ROWS)
    def test_row(one: Sample, row):
        assert one is row
        row.evaluation_result = EvaluateResult(score=1.0)
        return row

    @pytest.mark.parametrize("level", [0.5, 1.0])
    @evaluation_test(ROWS)
    def test_levels(level, messages):
        return level

    @evaluation_test(ROWS, batch=True)
    def test_batch(ground_truth, reply, judge):
        return [judge(*each) for each in zip(ground_truth, reply, strict=True)]

    @evaluation_test(ROWS, groupwise=True, repeats=3, endpoint=says("yes"))
    async def test_group(sample, response):
        assert len({each.id for each in sample}) == 1
        assert response == ["yes"] * 3
        return [0.0, 0.5, 1.0]

    @evaluation_test(ROWS, groupwise=True, endpoints=[says("yes"), says("no")])
    def test_endpoints_together(response, endpoints, sample):
        assert endpoints == ["mock:fixed", "mock:fixed#2"]
        assert [each.metadata["endpoint"] for each in sample] == endpoints
        return [said == "yes" for said in response]

    @evaluation_test(ROWS, endpoints=[says("yes"), says("no")])
    def test_endpoints_apart(response, ground_truth):
        return response == ground_truth

    def ask(sample):
        return [Message(role="user", content="Say yes.")]

    @evaluation_test(ROWS, endpoint="mock:echo", prepare_messages=ask, tags=["echo"], seed=0)
    def test_prepared(response):
        return response == "Say yes."

    FILLED = PromptTemplate("About {topic}.")

    TOPICS = [{"id": each, "topic": "bread"} for each in "ab"]

    @evaluation_test(TOPICS, endpoint="mock:echo", prepare_messages=FILLED)
    def test_filled(response, topic):
        return response == "About bread." and topic == "bread"

    @pytest.mark.parametrize("k", [1])
    class TestMethods:
        @evaluation_test(ROWS)
        def test_instance(self, k, row):
            return isinstance(self, TestMethods) and k == 1

        @staticmethod
        @evaluation_test(ROWS)
        def test_static(k, row):
            return k == 1

        @classmethod
        @evaluation_test(ROWS)
        async def test_class(cls, k, row):
            return cls is TestMethods

    def test_plain_call():
        assert test_named([Message(role="user", content="?")], "x", question="?", reply="x")
        assert asyncio.run(test_async(None, None)) == 0.25
"""
SCORES = {
    "test_named": 0.5,
    "test_fixture": 0.5,
    "test_async": 0.25,
    "test_row": 1.0,
    "test_levels[0.5]": 0.5,
    "test_levels[1.0]": 1.0,
    "test_batch": 0.5,
    "test_group": 0.5,
    "test_endpoints_together[mock:fixed]": 1.0,
    "test_endpoints_together[mock:fixed#2]": 0.0,
    "test_endpoints_apart[mock:fixed]": 1.0,
    "test_endpoints_apart[mock:fixed#2]": 0.0,
    "test_prepared": 1.0,
    "test_filled": 1.0,
    "TestMethods::test_instance[1]": 1.0,
    "TestMethods::test_static[1]": 1.0,
    "TestMethods::test_class[1]": 1.0,
    "test_future": 1.0,
}
FUTURE = """
    from __future__ import annotations
    from assay import EvaluationRow, evaluation_test

    @evaluation_test([{"id": "a", "question": "?"}, {"id": "b", "question": "?"}])
    def test_future(anything: EvaluationRow, question: str) -> float:
        return float(anything.id in "ab" and question == "?")
"""


def scores(session: Session) -> dict[str, float | None]:
    return {name: test["score"] for name, test in session.tests.items()}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("working")
    write_tests(folder, WORKING)
    (folder / "test_future.py").write_text(textwrap.dedent(FUTURE))
    return call_pytest(folder)


def test_a_function_takes_what_it_names_and_returns_any_kind_of_score(session: Session) -> None:
    assert session.status == 0, session.output
    assert scores(session) == SCORES


def test_the_summary_tells_what_was_run(session: Session) -> None:
    assert session.summary["passed"] is True
    assert session.tests["test_fixture"]["metrics"]["m"]["mean"] == 0.5
    assert session.tests["test_prepared"]["tags"] == ["echo"]
    assert session.tests["test_prepared"]["config"]["endpoint"]["model"] == "echo"
    assert session.tests["test_group"]["config"]["mode"] == "groupwise"
    assert session.tests["test_group"]["results"] == 6
    assert session.tests["test_batch"]["config"]["score_fn"].startswith("test_evals.test_batch ")


def test_every_sample_tells_its_dataset_its_row_and_its_test(session: Session) -> None:
    first, *_, last = session.rows("::test_prepared")
    fingerprint = session.tests["test_prepared"]["dataset_fingerprint"]

    assert len(fingerprint) == 64
    assert first.input_metadata == {
        "dataset": "list in memory",
        "dataset_fingerprint": fingerprint,
        "row_id": "a",
        "test": "test_evals.py::test_prepared",
        "endpoint": "mock:echo",
        "agent": None,
        "environment": None,
        "threshold": None,
        "repeats": 1,
        "seed": 0,
        "tags": ["echo"],
    }
    assert last.input_metadata["row_id"] == "b"
    batch, *_ = session.rows("::test_batch")
    assert batch.input_metadata["test"] == "test_evals.py::test_batch"
    together = session.rows("::test_endpoints_together[mock:fixed#2]")
    assert {each.input_metadata["endpoint"] for each in together} == {"mock:fixed#2"}


def test_the_store_has_the_same_metadata(session: Session) -> None:
    with Store.open(session.folder / ".assay" / "assay.db", create=False) as store:
        recorded = list(store.run(session.tests["test_prepared"]["run"]).samples())

    assert [each.metadata for each in recorded] == [
        each.metadata for each in session.rows("::test_prepared")
    ]


def test_every_sample_is_among_the_rows(session: Session) -> None:
    for name, test in session.tests.items():
        found = session.rows(f"::{name}")
        assert len(found) == test["results"]
        assert {sample.id for sample in found} == {"a", "b"}


def test_each_test_has_its_numbers_in_the_junit_report(session: Session) -> None:
    found = session.properties("test_named")

    assert (found["assay_score"], found["assay_results"]) == ("0.5", "2")
    assert "assay_threshold" not in found
    together = session.properties("test_endpoints_together")
    assert together["assay_score[mock:fixed#2]"] == "0.0"


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_workers_end_up_in_one_summary_with_pytest_asyncio_deciding_nothing(
    tmp_path: Path,
) -> None:
    write_tests(tmp_path, WORKING)
    (tmp_path / "test_future.py").write_text(textwrap.dedent(FUTURE))
    options = ["-n", "2"]
    if importlib.util.find_spec("pytest_asyncio") is not None:
        scope = "asyncio_default_fixture_loop_scope"
        options += ["--asyncio-mode=auto", "-o", f"{scope}=function"]

    session = run(tmp_path, *options)

    assert session.status == 0, session.output
    assert scores(session) == SCORES
    assert len(session.rows("")) == sum(test["results"] for test in session.summary["tests"])
    assert session.properties("test_named")["assay_score"] == "0.5"
    assert sorted(path.name for path in (tmp_path / ".assay").glob("summary*")) == [
        "summary.json",
        "summary.jsonl",
    ]


@pytest.mark.skipif(
    importlib.util.find_spec("pytest_asyncio") is None, reason="needs pytest-asyncio"
)
def test_strict_mode_of_pytest_asyncio_works_beside_marked_tests(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"))
        async def test_unmarked(reply):
            await asyncio.sleep(0)
            return 1.0

        @pytest.mark.asyncio
        @evaluation_test(rows(a="yes"))
        async def test_marked(reply):
            return 1.0

        @pytest.mark.asyncio
        async def test_of_theirs():
            await asyncio.sleep(0)
        """,
    )

    session = call_pytest(
        tmp_path, "--asyncio-mode=strict", "-o", "asyncio_default_fixture_loop_scope=function"
    )

    assert set(session.outcomes.values()) == {"passed"}, session.output
    assert scores(session) == {"test_unmarked": 1.0, "test_marked": 1.0}


def test_tests_can_be_chosen_and_listed_without_evaluating(tmp_path: Path) -> None:
    write_tests(tmp_path, WORKING)

    listed = call_pytest(tmp_path, "--collect-only", "-q")
    assert "test_evals.py::test_endpoints_apart[mock:fixed#2]" in listed.output
    assert not (tmp_path / ".assay").exists()

    chosen = call_pytest(tmp_path, "-k", "levels and 0.5", "-m", "evaluation")
    assert scores(chosen) == {"test_levels[0.5]": 0.5}


def test_the_command_line_can_limit_samples_and_name_the_model(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="", b="", c=""), endpoints=["mock:fixed", says("x")])
        def test_it(response, question):
            return response == question
        """,
    )

    session = call_pytest(tmp_path, "--assay-max-samples", "2", "--assay-model", "mock:echo")

    assert scores(session) == {"test_it[mock:echo]": 1.0}
    assert session.summary["results"] == 2


def test_a_method_of_a_unittest_class_is_refused(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        import unittest

        class TestOld(unittest.TestCase):
            @evaluation_test([{"question": "?"}])
            def test_it(self):
                return 1.0
        """,
    )

    session = call_pytest(tmp_path)

    assert session.status == pytest.ExitCode.USAGE_ERROR
    assert "an evaluation cannot be a method of a unittest.TestCase" in session.output


def test_a_decorator_that_would_be_ignored_is_refused(tmp_path: Path) -> None:
    below = """
        from unittest.mock import patch

        ANSWERS = {"?": 0.0}

        @evaluation_test([{"question": "?"}])
        @patch.dict(ANSWERS, {"?": 1.0})
        def test_it(question):
            return ANSWERS[question]
        """
    first, second = [line for line in below.splitlines() if line.strip().startswith("@")]
    write_tests(tmp_path, below)
    assert scores(call_pytest(tmp_path)) == {"test_it": 1.0}

    write_tests(tmp_path, below.replace(f"{first}\n{second}", f"{second}\n{first}"))
    session = call_pytest(tmp_path)

    assert session.status == pytest.ExitCode.USAGE_ERROR
    assert "test_it: a decorator above @evaluation_test has no effect" in session.output


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="needs pytest-xdist")
def test_a_worker_that_dies_takes_no_other_test_with_it(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"))
        def test_a(reply):
            return 1.0

        @evaluation_test(rows(a="yes"))
        def test_b(reply):
            os._exit(3)

        @evaluation_test(rows(a="yes"))
        def test_c(reply):
            return 1.0
        """,
    )

    session = run(tmp_path, "-n", "1")

    assert session.status == 1
    assert session.outcomes == {"test_a": "passed", "test_b": "error", "test_c": "passed"}
    assert scores(session) == {"test_a": 1.0, "test_b": None, "test_c": 1.0}
    assert session.tests["test_b"]["reason"] == "the process ended while the test ran"
