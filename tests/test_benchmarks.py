"""The benchmarks run and print figures that can be true. How fast anything is, is not tested."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHMARKS / script), *options],
        capture_output=True,
        text=True,
        timeout=300,
    )


def printed(script: str, *options: str) -> str:
    done = run(script, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def figures(script: str, *options: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(script, *options, "--json"))
    return found


def test_the_models_are_timed_beside_plain_pydantic_and_json() -> None:
    found = figures("models.py", "--rounds", "1")

    times = found["us_per_sample"]
    assert {"load, assay, its own form", "load, plain pydantic", "dump, json.dumps"} <= set(times)
    assert all(us > 0 for us in times.values())


def test_both_contenders_meet_the_same_server_at_the_same_concurrency() -> None:
    found = figures("harness.py", "throughput", "--rounds", "1", "--loads", "4:40,20:100")

    assert list(found) == ["throughput", "workers"]
    both = found["workers"]
    assert both["concurrency"] == 20
    for scorer in (both["computing"], both["instant"]):
        paces = [scorer["workers"][count]["requests_per_s"] for count in ("2", "1")]
        assert scorer["ratio"] == pytest.approx(paces[0] / paces[1])
    small, large = found["throughput"]
    assert (small["concurrency"], small["requests"]) == (4, 40)
    for contender in ("bare", "assay"):
        assert small[contender]["most_in_flight"] == small[contender]["connections"] == 4
        assert 0 < large[contender]["most_in_flight"] <= 20
        # No faster than its concurrency allows: the latency is really there.
        assert 0 < small[contender]["requests_per_s"] <= 4 / 0.05 * 1.05
        assert small[contender]["cpu_ms"] > 0
    paces = [small[name]["requests_per_s"] for name in ("assay", "bare")]
    assert small["ratio"] == pytest.approx(paces[0] / paces[1])


def test_cpu_is_given_for_each_size_beside_its_budget() -> None:
    found = figures("harness.py", "cpu", "--rounds", "1", "--samples", "20,60")

    cpu = found["cpu"]
    assert list(cpu["cpu_ms_per_sample"]) == ["20", "60"]
    assert all(ms > 0 for ms in cpu["cpu_ms_per_sample"].values())
    assert cpu["budget_ms"] == 0.15
    assert 0 < cpu["yardstick_ns"]["best"] <= cpu["yardstick_ns"]["worst"]
    assert cpu["turns_per_sample"].keys() == cpu["cpu_ms_per_sample"].keys()


def test_peak_memory_is_that_of_a_process_of_its_own() -> None:
    found = figures("harness.py", "memory", "--rows", "20,60")

    peaks = found["memory"]["peak_bytes"]
    assert list(peaks) == ["20", "60"]
    # An interpreter with the libraries in it, and not the machine's memory.
    assert all(20e6 < peak < 1e9 for peak in peaks.values())
    assert found["memory"]["ratio"] == pytest.approx(peaks["60"] / peaks["20"])


def test_a_person_is_shown_every_part_with_its_budget() -> None:
    sizes = ["--rounds", "1", "--loads", "5:20", "--samples", "20", "--rows", "20"]
    text = printed("harness.py", *sizes)

    assert "concurrency" in text
    assert "budget 1.7 on idle cores" in text
    assert "ms CPU each, budget 0.15" in text
    assert "MB at most" in text


@pytest.mark.parametrize(
    "wrong", [["speed"], ["--loads", "10"], ["--samples", "many"], ["--samples", "0"]]
)
def test_what_cannot_be_measured_is_refused(wrong: list[str]) -> None:
    done = run("harness.py", *wrong)

    assert done.returncode == 2
    assert wrong[-1] in done.stderr
    assert "Traceback" not in done.stderr


def test_starting_is_measured_for_each_command_and_the_first_evaluation() -> None:
    found = figures("start_up.py", "--rounds", "1")

    assert {"assay runs", "assay show", "assay compare", "assay gate"} < set(found)
    assert all(figure["cpu_s"] > 0 for figure in found.values())
    assert found["assay gate"]["budget_s"] == 0.35
    assert found["first evaluate()"]["budget_s"] == 0.3


def test_the_gateway_is_measured_beside_a_bare_proxy() -> None:
    found = figures("gateway.py", "--loads", "2:2", "--memory", "100")

    assert [each["proxy"] for each in found["loads"]] == ["direct", "bare", "gateway", "translated"]
    for each in found["loads"]:
        assert (each["in_flight"], each["calls"]) == (2, 20)
        # The latency of the model is really there.
        assert each["first_byte_ms"] >= 50
    assert len(found["memory_mb"]) == 5


@pytest.mark.slow  # starts a server of its own
def test_store_writes_are_counted_for_each_store_and_number_of_processes() -> None:
    found = figures("store_writes.py", "--processes", "2", "--batches", "2", "--batch", "10")

    measured = [(each["store"], each["processes"]) for each in found["writes"]]
    assert measured == [("sqlite", 2), ("postgresql", 2)]
    for each in found["writes"]:
        assert each["results_per_s"] == pytest.approx(10 * each["commits_per_s"])
        assert each["commit_ms"] > 0
        assert each["client_cpu_us"] > 0


def test_a_served_model_is_trained_beside_a_local_one() -> None:
    options = ("--seeds", "1", "--steps", "3", "--wait", "0", "--staleness", "1", "--json")
    lines = [json.loads(line) for line in printed("served_grpo.py", *options).splitlines()]

    local, served, plain = (each["curves"][0] for each in lines)
    assert [each["sampling"] for each in lines] == ["local", "served 1", "plain 1"]
    assert (plain["weight"], plain["capped"]) == (1.0, 0.0)
    assert len(local["rewards"]) == len(served["rewards"]) == 3
    assert (local["staleness"], local["stale"], served["stale"]) == (None, 0, 0)
    assert served["staleness_max"] <= 1


def test_samples_in_flight_are_counted_by_the_server() -> None:
    (found,) = figures("in_flight.py", "--in-flight", "5", "--latency", "0.05")["in_flight"]

    assert (found["wanted"], found["most"]) == (5, 5)
    assert found["peak_bytes"] > 10_000_000
    assert found["cpu_ms"] > 0
