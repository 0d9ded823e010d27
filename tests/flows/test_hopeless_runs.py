"""Runs in which nothing can succeed: few calls, the reason, and the exit status."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.store import Store
from commands import Ended, call_main, run_process
from evaluation_sessions import call_pytest, write_tests
from misbehaving import Exchange, MisbehavingServer, refused_port

FILE = """
from assay.runner import EvalConfig
from assay.types import Endpoint

def score(sample):
    SCORE

config = EvalConfig(
    endpoint=Endpoint(provider="openai", model="ghost", api_base="URL", api_key="k-1"),
    score_fn=score,
    name="sums",
)
dataset = [{"id": f"q{n}", "question": str(n), "answer": str(n)} for n in range(300)]
"""


@pytest.fixture
def server() -> Iterator[MisbehavingServer]:
    with MisbehavingServer() as server:
        yield server


def write(folder: Path, url: str, *, score: str = "return 1.0") -> None:
    (folder / "sums.py").write_text(FILE.replace("URL", url).replace("SCORE", score))


def evaluate(folder: Path, url: str, *options: str, score: str = "return 1.0") -> Ended:
    write(folder, url, score=score)
    return call_main(folder, "eval", "sums.py", *options)


async def unknown_model(exchange: Exchange) -> None:
    await exchange.answer(404, {"error": {"message": "the model `ghost` does not exist"}})


def test_an_unknown_model_stops_the_command_with_its_reason(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    server.react = unknown_model
    write(tmp_path, server.url)

    ended = run_process(tmp_path, "eval", "sums.py")

    assert ended.returncode == 3, ended.stderr
    assert "HTTP 404: the model `ghost` does not exist" in ended.stderr
    assert "hint: check the model name" in ended.stderr
    assert "assay eval sums.py --resume sums-" in ended.stderr
    assert len(server.calls) <= 15
    with Store.open(tmp_path / ".assay" / "assay.db", create=False) as store:
        assert len(list(store.run().attempts())) == len(server.calls)


def test_a_refused_connection_stops_the_command_within_seconds(tmp_path: Path) -> None:
    with refused_port() as port:
        ended = evaluate(tmp_path, f"http://127.0.0.1:{port}/v1", "--concurrency", "100")

    assert ended.returncode == 3, ended.stderr
    assert "Connection refused" in ended.stderr


def test_a_scorer_that_always_raises_stops_the_command(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    ended = evaluate(tmp_path, server.url, score="return sample.input['answr'] == 1")

    assert ended.returncode == 3, ended.stderr
    assert "all failed at the scorer: KeyError: 'answr' (sums.py, line 6)" in ended.stderr
    assert len(server.calls) <= 15


def test_a_failed_sample_stops_the_command_if_it_is_asked_to(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    score = "return 1.0 if sample.id != 'q3' else 1 / 0"

    ended = evaluate(
        tmp_path, server.url, "--fail-on-error", "--concurrency", "1", "--quiet", score=score
    )

    assert ended.returncode == 3, ended.stderr
    assert "fail_on_error=True: 1 of 300 samples failed" in ended.stderr
    assert "ZeroDivisionError" in ended.stderr
    assert "assay eval sums.py --concurrency 1 --fail-on-error --resume" in ended.stderr
    assert len(server.calls) == 4


@pytest.mark.parametrize("option", ["--max-cost-usd", "--max-run-cost-usd"])
def test_a_limit_of_costs_needs_a_price(
    option: str, tmp_path: Path, server: MisbehavingServer
) -> None:
    ended = evaluate(tmp_path, server.url, option, "0.5")

    assert ended.returncode == 2
    assert (
        "max_cost_usd=0.5 cannot be enforced: the price of 'openai:ghost' is unknown"
        in ended.stderr
    )
    assert server.calls == []


def test_a_limit_of_the_whole_run_stops_the_command_and_a_resume_continues_it(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    ended = evaluate(tmp_path, server.url, "--max-run-turns", "20", "--max-samples", "30")

    assert ended.returncode == 3, ended.stderr
    assert "stopped by run_limits.max_turns=20: its agents asked for 20 turns" in ended.stderr
    assert "--max-run-turns 20 --resume sums-" in ended.stderr
    assert len(server.calls) == 20

    rest = evaluate(
        tmp_path, server.url, "--max-run-turns", "11", "--max-samples", "30", "--resume"
    )

    assert rest.returncode == 0, rest.stderr
    assert len(server.calls) == 30


def test_several_processes_do_not_share_the_limits_of_a_run(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    ended = evaluate(tmp_path, server.url, "--max-run-turns", "20", "--workers", "2")

    assert ended.returncode == 2
    assert "`run_limits` cannot be enforced over several processes" in ended.stderr
    assert server.calls == []


def test_a_misspelt_parameter_of_a_test_is_found_before_the_first_call(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    write_tests(
        tmp_path,
        f"""
        ASKED = Endpoint(provider="openai", model="m", api_base="{server.url}", api_key="k-1")

        @evaluation_test(rows(a="yes", b="no"), endpoint=ASKED)
        def test_misspelt(reponse, ground_truth):
            return reponse == ground_truth

        @evaluation_test(rows(a="yes", b="no"), endpoint=ASKED, batch=True)
        def test_misspelt_together(sample, reponse):
            return [1.0] * len(sample)
        """,
    )

    session = call_pytest(tmp_path)

    assert session.outcomes == dict.fromkeys(("test_misspelt", "test_misspelt_together"), "failure")
    assert "has no field 'reponse'" in session.output
    assert server.calls == []


def test_limits_of_a_test_and_of_the_command_line(
    tmp_path: Path, server: MisbehavingServer
) -> None:
    server.react = unknown_model
    write_tests(
        tmp_path,
        f"""
        ASKED = Endpoint(provider="openai", model="m", api_base="{server.url}", api_key="k-1")
        ROWS = rows(**{{f"s{{n}}": "yes" for n in range(100)}})

        @evaluation_test(ROWS, endpoint=ASKED)
        def test_hopeless(response):
            return 1.0

        @evaluation_test(ROWS, fail_on_error=2, concurrency=1)
        def test_own_limit(sample):
            return 1.0 if sample.id in ("s0", "s9") else 1 / 0

        @evaluation_test(ROWS, endpoint=ASKED, max_cost_usd=1)
        def test_without_a_price(response):
            return 1.0
        """,
    )

    session = call_pytest(tmp_path)
    sooner = call_pytest(tmp_path, "--assay-fail-on-error", "1", "-k", "own_limit")
    wrong = call_pytest(tmp_path, "--assay-fail-on-error", "2.5")

    assert set(session.outcomes.values()) == {"failure"}
    assert "none of the first" in session.output
    assert "fail_on_error=2: 3 of 100 samples failed" in session.output
    assert "the price of 'openai:m' is unknown" in session.output
    assert len(server.calls) <= 15
    assert "fail_on_error=1: 2 of 100 samples failed" in sooner.output
    assert wrong.status == 4
    assert "--assay-fail-on-error=2.5 is not True or False, a share" in wrong.output
