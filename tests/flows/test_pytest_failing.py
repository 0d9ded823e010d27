"""Evaluations that fail: after every sample is recorded, with each bad one named."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation_sessions import Session, call_pytest, finished, start, write_tests

FAILING = """
    BAD = rows(good="yes", **{"bad one": "no", "-evil": "\\x1b[31m\\n::add-mask::x"}, last="yes")

    def judge(reply):
        if reply != "yes":
            raise ValueError(f"cannot read {reply}")
        return 1.0

    @evaluation_test(BAD, threshold=0.5)
    def test_exception(reply):
        return judge(reply)

    @evaluation_test(rows(a="yes", b="no"))
    def test_assertion(reply):
        assert reply == "yes"
        return 1

    @evaluation_test(rows(a="yes", b="no", c="yes"), threshold=0.6)
    def test_assertion_allowed(reply):
        assert reply == "yes"
        return 1

    @evaluation_test(rows(a="yes", b="no"), endpoint=says("no"), threshold=0.6, repeats=2)
    async def test_assertion_on_an_answer(response, reply):
        assert response == reply, "another answer"
        return 1

    @evaluation_test(rows(a="yes", b="no"), batch=True)
    def test_assertion_over_all(reply):
        assert reply.count("yes") == 2
        return [1, 1]

    @evaluation_test(rows(a="1", b="nan", c="none", d="true", e="text", f="fail", g="exit"))
    def test_kinds(reply):
        if reply == "fail":
            pytest.fail("said so")
        if reply == "exit":
            raise SystemExit(3)
        return {"1": 1, "nan": float("nan"), "none": None, "true": True, "text": "x"}[reply]

    @evaluation_test(rows(a="yes", b="no"))
    async def test_invalid(reply):
        if reply == "no":
            return EvaluateResult(score=0.9, is_score_valid=False, reason="the judge was away")
        return EvaluateResult(score=0.9)

    @evaluation_test(rows(a="yes", b="no"), batch=True)
    def test_batch_raises(reply):
        raise RuntimeError("boom")

    @evaluation_test(
        rows(**{f"s{n}": "yes" for n in range(30)}, silent=""),
        endpoint=Endpoint(provider="mock", model="script", extra_params={"replies": ["yes"] * 30}),
        concurrency=1,
        batch=True,
    )
    def test_part_of_batch(response):
        raise RuntimeError("bang")

    @evaluation_test(rows(**{f"s{n}": "yes" for n in range(40)}))
    def test_never_scores(reply):
        raise KeyError("no key")

    @evaluation_test(rows(a="yes", b="no"), threshold=0.9)
    def test_asserted_threshold(reply):
        assert reply == "yes"
        return 1.0

    @evaluation_test(rows(a="yes", b="no"), threshold=1)
    def test_whole_number(reply, ground_truth):
        return reply == ground_truth

    @evaluation_test(rows(a="0"), threshold=1)
    def test_score_0(reply):
        return 0

    @evaluation_test(rows(**{f"s{n}": "yes" for n in range(20)}), threshold=0.8)
    def test_enough(reply):
        return 1.0

    @evaluation_test(
        rows(**{f"s{n}": "yes" for n in range(20)}), threshold=GateRule(minimum=0.95, proven=True)
    )
    def test_unproven(reply):
        return 1.0

    @evaluation_test(rows(a="yes", b="no"), threshold=0.5)
    def test_too_few(reply, ground_truth):
        return reply == ground_truth

    @evaluation_test("no_such_file.jsonl")
    def test_no_file(reply):
        return 1.0

    @evaluation_test(rows(a="yes"))
    def test_no_field(replly):
        return 1.0

    @evaluation_test([])
    def test_empty(reply):
        return 1.0

    @evaluation_test(rows(a="yes"), threshold=GateRule(minimum=0.5, tolerance=0.1))
    def test_bad_rule(reply):
        raise AssertionError("nothing is paid for before the rule is checked")

    @pytest.fixture
    def broken():
        raise OSError("no such database")

    @evaluation_test(rows(a="yes"))
    def test_setup(reply, broken):
        return 1.0

    @evaluation_test(rows(a="yes", b="no"), timeout_s=1.0)
    async def test_slow(reply):
        if reply == "no":
            await asyncio.sleep(60)
        return 1.0

    @evaluation_test(
        rows(a="yes", b="no"),
        endpoint=Endpoint(provider="mock", model="script", extra_params={"replies": ["yes"]}),
        concurrency=1,
    )
    def test_endpoint(sample, response):
        assert sample.id == "a", "a sample without an answer is not judged"
        return 1.0

    @evaluation_test(rows(a="1", b="2"), threshold=3)
    def test_other_scale(reply):
        return 5.0

    replies = ["yes", "yes", "no", "yes", "no", "yes"]

    @evaluation_test(
        rows(france="", italy=""),
        endpoint=Endpoint(provider="mock", model="script", extra_params={"replies": replies}),
        repeats=3,
        threshold=0.9,
        concurrency=1,
    )
    def test_worst(response, ground_truth):
        return EvaluateResult(
            score=float(response == ground_truth), reason=f"{response} is not {ground_truth}"
        )

    tried = []

    @evaluation_test(rows(a="yes", b="no"), retries=2)
    def test_retried(reply):
        tried.append(reply)
        if reply == "no" and tried.count("no") < 3:
            raise ValueError("not yet")
        return 1.0
"""
PASSING = {
    "test_assertion_allowed",
    "test_other_scale",
    "test_enough",
    "test_too_few",
    "test_retried",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("failing")
    write_tests(folder, FAILING)
    (folder / "sub").mkdir()
    page = folder / "step.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    return call_pytest(folder, env={**github, "GITHUB_WORKSPACE": str(folder)})


def test_only_what_is_good_passes(session: Session) -> None:
    assert session.status == 1
    assert {n for n, found in session.outcomes.items() if found == "passed"} == PASSING
    assert {n for n, test in session.tests.items() if test["passed"]} == PASSING
    assert session.summary["passed"] is False


def test_every_failing_evaluation_is_in_the_summary_with_its_reason(session: Session) -> None:
    assert set(session.tests) == set(session.outcomes)
    reasons = {name: test["reason"] for name, test in session.tests.items()}
    assert (
        "there is no such" in reasons["test_no_file"] or "no_such_file" in reasons["test_no_file"]
    )
    assert reasons["test_setup"] == "setup: OSError: no such database"
    assert reasons["test_empty"] == "no sample was evaluated"
    assert "without a tolerance" in reasons["test_bad_rule"]
    assert session.tests["test_bad_rule"]["results"] == 0


def test_the_other_samples_are_evaluated_and_recorded_first(session: Session) -> None:
    found = {sample.id: sample.reward for sample in session.rows("::test_exception")}

    assert found == {"good": 1.0, "bad one": None, "-evil": None, "last": 1.0}
    assert session.tests["test_exception"]["failed"] == {"scorer": 2}
    assert session.tests["test_exception"]["score"] == 1.0


def test_each_bad_sample_is_named_with_its_reason_and_transcript(session: Session) -> None:
    run_id = session.tests["test_exception"]["run"]

    assert "2 of 4 results without a valid score:" in session.output
    assert "  sample bad one: scorer: ValueError: cannot read no" in session.output
    assert f"    transcript: assay show {run_id} 'bad one'" in session.output
    assert f"    transcript: assay show -- {run_id} -evil" in session.output
    assert "sample b: the judge was away" in session.output
    assert "test_no_field: sample 'a' has no field 'replly'" in session.output


def test_the_place_of_an_exception_is_told(session: Session) -> None:
    code = (session.folder / "test_evals.py").read_text().splitlines()
    line = 1 + code.index('        raise ValueError(f"cannot read {reply}")')

    assert f"    raised at: test_evals.py:{line}" in session.output


def test_a_fault_of_the_whole_batch_is_one_line(session: Session) -> None:
    code = (session.folder / "test_evals.py").read_text().splitlines()
    line = 1 + code.index('    raise RuntimeError("boom")')
    told = "all 2 results without a valid score: scorer: RuntimeError: boom"

    assert f"{told} (test_evals.py:{line})" in session.output.splitlines()
    assert session.tests["test_batch_raises"]["reason"].startswith(told)
    assert session.output.count("RuntimeError: boom") <= 4


def test_a_fault_of_the_whole_batch_is_one_line_beside_rollouts_that_failed(
    session: Session,
) -> None:
    run_id = session.tests["test_part_of_batch"]["run"]
    report = session.output.partition("__ test_part_of_batch __")[2].partition("\n__")[0]
    all_of_them = "  30 results: scorer: RuntimeError: bang"

    assert "31 of 31 results without a valid score:" in report
    assert f"{all_of_them} (test_evals.py:" in report
    assert "  sample silent: endpoint: " in report
    assert f"    transcript: assay show {run_id} silent" in report
    assert report.count("    transcript: ") == 2
    assert len(report.splitlines()) == 7, report


def test_a_run_that_is_stopped_tells_the_place_of_the_exception(session: Session) -> None:
    report = session.output.partition("__ test_never_scores __")[2].partition("\n__")[0]
    code = (session.folder / "test_evals.py").read_text().splitlines()
    line = 2 + code.index("def test_never_scores(reply):")

    assert "the run was stopped" in report
    assert f"  raised at: test_evals.py:{line}" in report.splitlines()
    test = session.tests["test_never_scores"]
    assert test["run"] is not None
    recorded = session.rows("::test_never_scores")
    assert len(recorded) == test["results"] == test["failed"]["scorer"] > 0


def test_the_worst_samples_tell_the_place_of_an_assertion(session: Session) -> None:
    report = session.output.partition("__ test_asserted_threshold __")[2].partition("\n__")[0]
    code = (session.folder / "test_evals.py").read_text().splitlines()
    line = 2 + code.index("def test_asserted_threshold(reply):")

    assert f"    raised at: test_evals.py:{line}\n    question: b?" in report


def test_a_missed_threshold_names_the_worst_samples(session: Session) -> None:
    run_id = session.tests["test_worst"]["run"]
    report = session.output.partition("__ test_worst __")[2]
    told = [
        "2 results below 0.900, the worst:",
        "  sample france#2: score 0.000: no is not yes",
        "    question: france?",
        "    answer: no",
        "    expected: yes",
        f"    transcript: assay show {run_id} 'france#2'",
        "  sample italy#1: score 0.000: no is not yes",
    ]

    assert "\n".join(told) in report


def test_the_command_shows_that_very_repeat(session: Session) -> None:
    run_id = session.tests["test_worst"]["run"]

    shown = subprocess.run(
        [sys.executable, "-m", "assay", "show", run_id, "france#2", "--json"],
        cwd=session.folder,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["repeat"] == 2


def test_text_in_the_junit_file_is_not_wrapped(session: Session) -> None:
    told = session.junit.read_text("utf-8")

    assert "20 perfect samples could not prove it" in told
    assert "\n              " not in told


def test_a_failed_assertion_is_a_score_of_0(session: Session) -> None:
    for test in ("test_assertion", "test_assertion_allowed"):
        good, bad, *_ = session.rows(f"::{test}")
        assert (good.reward, bad.reward, bad.failure) == (1.0, 0.0, None)
        assert bad.score is not None
        assert (bad.score.reason or "").startswith("assert 'no' == 'yes'")

    asserted = session.tests["test_assertion"]
    assert (asserted["score"], asserted["judged"], asserted["failed"]) == (0.5, 2, {})
    assert asserted["reason"] == "1 assertion failed, and no `threshold` allows any to fail"
    assert "1 assertion failed (score 0.0):" in session.output
    assert "  sample b: assert 'no' == 'yes'" in session.output


def test_an_assertion_on_an_answer_is_a_verdict_on_that_answer(session: Session) -> None:
    found = session.tests["test_assertion_on_an_answer"]
    rows = session.rows("::test_assertion_on_an_answer")

    assert (found["score"], found["judged"], found["results"]) == (0.5, 4, 4)
    assert found["reason"] == "mean 0.500 is below 0.600"
    reasons = [row.score.reason for row in rows if row.reward == 0.0 and row.score is not None]
    assert [(reason or "").splitlines() for reason in reasons] == [
        ["another answer", "assert 'no' == 'yes'", "  ", "  - yes", "  + no"]
    ] * 2


def test_an_assertion_over_all_samples_is_a_verdict_on_all_of_them(session: Session) -> None:
    rows = session.rows("::test_assertion_over_all")

    assert [row.reward for row in rows] == [0.0, 0.0]
    assert all(row.score and (row.score.reason or "").startswith("assert 1 == 2") for row in rows)
    assert "  sample all 2 in one call: assert 1 == 2" in session.output


def test_what_is_no_score_is_never_one(session: Session) -> None:
    found = {sample.id: sample.reward for sample in session.rows("::test_kinds")}

    assert found == {"a": 1.0, "d": 1.0, **dict.fromkeys("bcefg")}
    assert "the function ended with Failed: said so" in session.output
    assert "the function ended with SystemExit: 3" in session.output


def test_a_threshold_of_any_kind_is_a_gate(session: Session) -> None:
    assert session.tests["test_whole_number"]["reason"] == "mean 0.500 is below 1.000"
    assert session.tests["test_score_0"]["reason"] == "mean 0.000 is below 1.000"
    assert "20 perfect samples could not prove it" in session.tests["test_unproven"]["reason"]
    assert session.tests["test_enough"]["interval"][0] > 0.8


def test_it_is_said_when_the_set_is_too_small_to_tell(session: Session) -> None:
    words = " ".join(session.output.split())

    assert (
        "score 0.500 [0.013, 0.987], threshold 0.500, 2 of 2 results judged; too few samples to "
        "place the true mean above or below the threshold" in words
    )


def test_a_sample_that_got_no_answer_is_not_judged(session: Session) -> None:
    answered, other = session.rows("::test_endpoint")

    assert (answered.reward, other.reward) == (1.0, None)
    assert other.failure is not None
    assert other.failure.boundary == "endpoint"


def test_scores_of_another_scale_get_no_made_up_interval(session: Session) -> None:
    assert session.tests["test_other_scale"]["score"] == 5.0
    assert session.tests["test_other_scale"]["interval"] == [None, None]
    assert (
        session.tests["test_too_few"]["interval"][0]
        < 0.5
        < session.tests["test_too_few"]["interval"][1]
    )


def test_a_sample_that_takes_too_long_has_failed_and_one_that_failed_is_tried_again(
    session: Session,
) -> None:
    assert {each.id: each.reward for each in session.rows("::test_slow")} == {"a": 1.0, "b": None}
    assert session.tests["test_retried"]["score"] == 1.0


def test_the_terminal_section_is_80_columns_wide_and_free_of_control_characters(
    session: Session,
) -> None:
    section = session.output.partition("= evaluations =")[2].partition("short test summary")[0]
    told = [line for line in section.splitlines()[1:-1] if not line.startswith("::error ")]

    assert len(told) > 30
    assert [line for line in told if len(line) > 80] == []
    assert "\x1b" not in session.output
    assert not [line for line in session.output.splitlines() if line.strip().startswith("::add")]


def test_github_is_told_of_each_failure_beside_its_test(session: Session) -> None:
    errors = [line for line in session.output.splitlines() if line.startswith("::error ")]

    assert len(errors) == len(session.tests) - len(PASSING)
    assert errors[0].startswith("::error file=test_evals.py,line=")
    table = (session.folder / "step.md").read_text("utf-8")
    assert table.count("❌") == len(errors)
    assert table.count("✅") == len(PASSING)


def test_the_first_failure_can_end_the_session_and_what_ran_is_kept(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"), threshold=1)
        def test_a(reply):
            return 0.0

        @evaluation_test(rows(a="yes"))
        def test_b(reply):
            return 1.0
        """,
    )

    session = call_pytest(
        tmp_path, "-x", "--assay-baseline=kept/base.json", "--assay-update-baseline"
    )

    assert list(session.tests) == ["test_a"]
    assert "the session ended early: kept/base.json was not updated" in session.output
    assert not (tmp_path / "kept").exists()


INTERRUPTED = """
    @evaluation_test(rows(a="yes"))
    def test_before(reply):
        return 1.0

    @evaluation_test(rows(a="yes", b="hang"), env_url="http://127.0.0.1:{port}", env_command=[
        %r, "-m", "http.server", "{port}", "--bind", "127.0.0.1"])
    async def test_hanging(reply):
        if reply == "hang":
            open("hanging", "w").close()
            await asyncio.sleep(60)
        return 1.0
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals and process groups")
def test_ctrl_c_keeps_what_is_done_and_stops_the_server(tmp_path: Path) -> None:
    write_tests(tmp_path, INTERRUPTED % sys.executable)
    process = start(tmp_path)
    deadline = time.monotonic() + 300
    while not (tmp_path / "hanging").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    children = children_of(process.pid)

    process.send_signal(signal.SIGINT)
    session = finished(process, tmp_path)

    assert session.status == pytest.ExitCode.INTERRUPTED, session.output
    assert session.tests["test_before"]["passed"]
    assert session.tests["test_hanging"]["reason"] == "interrupted"
    assert [each.id for each in session.rows("::test_hanging")] == ["a"]
    assert len(children) == 1
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def children_of(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in found.read_text().split()]


def test_a_summary_that_cannot_be_written_fails_each_test_before_it_begins(tmp_path: Path) -> None:
    write_tests(
        tmp_path,
        """
        @evaluation_test(rows(a="yes"))
        def test_one(reply):
            raise SystemError("the test was run")

        @evaluation_test(rows(a="yes"))
        async def test_two(reply):
            raise SystemError("the test was run")
        """,
    )
    (tmp_path / "file").touch()

    session = call_pytest(tmp_path, "--assay-summary=file/summary.json")

    assert session.status == 1
    # On CI, the lines of the short summary have the reason too.
    lines = [line for line in session.output.splitlines() if not line.startswith("FAILED ")]
    assert sum("the summary cannot be written: Not a directory" in line for line in lines) == 2
    assert "pass --assay-summary with a file in a folder that can be written" in session.output
    assert "the test was run" not in session.output
    assert "Traceback" not in session.output
    assert "worker_files.py" not in session.output
