"""`assay eval` and the commands after it, as processes: output, exit statuses, signals."""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from assay.store import Store
from commands import build_command, build_environment, call_main, run_process

PATIENCE_S = 300.0
FILE = """
import asyncio
import os

from assay.runner import EvalConfig
from assay.types import Endpoint

def note(name, sample):
    with open(name, "a") as file:
        file.write(sample.id + "\\n")

async def score(sample):
    note("begun.txt", sample)
    while int(sample.id[1:]) >= HELD_FROM and os.path.exists("hold"):
        await asyncio.sleep(0.01)
    note("scored.txt", sample)
    return sample.response == sample.ground_truth

config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo", extra_params={"latency_s": LATENCY}),
    score_fn=score,
    concurrency=2,
    name="sums",
)
dataset = [{"id": f"q{n}", "question": str(n), "answer": str(n % 30)} for n in range(40)]
"""


def write(folder: Path, *, latency_s: float = 0.0, held_from: int = 0) -> None:
    """Write the evaluation. The file `hold` keeps samples from `held_from` on in their scorer."""
    text = FILE.replace("LATENCY", str(latency_s)).replace("HELD_FROM", str(held_from))
    (folder / "sums.py").write_text(text)


def scored(folder: Path) -> list[str]:
    return noted(folder / "scored.txt")


def noted(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def wait_until_noted(path: Path, count: int, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while len(noted(path)) < count:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def started(folder: Path, *options: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        build_command("eval", "sums.py", *options),
        cwd=folder,
        env=build_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def recorded(folder: Path) -> list[str]:
    with Store.open(folder / ".assay", create=False) as store:
        return [row.sample_id for row in store.run().results()]


def test_json_is_one_object_whatever_a_child_process_of_the_users_code_prints(
    tmp_path: Path,
) -> None:
    (tmp_path / "graded.py").write_text(
        "import subprocess\n"
        "from assay.runner import EvalConfig\n"
        "def score(sample):\n"
        "    subprocess.run(['echo', 'graded', sample.id], check=True)\n"
        "    return 1.0\n"
        "subprocess.run(['echo', 'imported'], check=True)\n"
        "config = EvalConfig(score_fn=score)\n"
        "dataset = [{'id': 'a', 'question': 'a'}]\n"
    )

    ended = run_process(tmp_path, "eval", "graded.py", "--json", "--quiet")

    assert json.loads(ended.stdout)["exit_status"] == ended.returncode == 0
    assert ended.stderr == "imported\ngraded a\n"


def test_a_run_is_recorded_shown_compared_and_gated(tmp_path: Path) -> None:
    write(tmp_path)

    first = run_process(tmp_path, "eval", "sums.py")
    second = call_main(tmp_path, "eval", "sums.py", "--json")
    said = json.loads(second.stdout)
    before = first.stdout.split("\nrun ")[1].split()[0]

    assert (first.returncode, second.returncode) == (0, 0)
    assert first.stdout.startswith("score         0.750 [")
    assert first.stderr == f"run {before}\n"
    assert all(len(line) <= 80 for line in first.stdout.splitlines() if "store" not in line)

    listed = run_process(tmp_path, "runs")
    assert [said["run"], before] == [
        line.split()[0] for line in listed.stdout.splitlines() if line.startswith("sums-")
    ]
    shown = run_process(tmp_path, "show", "latest", "--limit", "3")
    assert re.search(r"^  0\.000 .* q30$", shown.stdout, re.MULTILINE)
    assert "and 37 more" in shown.stdout
    transcript = call_main(tmp_path, "show", before, "q30")
    assert "--- 1 assistant\n30\n\n--- result\nscore     0\n" in transcript.stdout
    compared = run_process(tmp_path, "compare", before, "latest", "--fail-on-regression")
    assert "40: 0 better, 0 worse, 40 the same" in compared.stdout
    assert [each.returncode for each in (listed, shown, transcript, compared)] == [0, 0, 0, 0]

    gates = [run_process(tmp_path, "gate", "latest", "--threshold", bar) for bar in ("0.75", "0.8")]
    assert [gate.returncode for gate in gates] == [0, 1]
    assert "threshold     failed: mean 0.750 is below 0.800" in gates[1].stdout
    assert call_main(tmp_path, "gate", "latest", "--baseline", before).returncode == 0


def test_commands_without_a_store_say_what_makes_one(tmp_path: Path) -> None:
    for words in (["runs"], ["show", "latest"], ["compare", "a", "b"], ["gate", "a"]):
        done = call_main(tmp_path, *words)

        assert (done.returncode, done.stdout) == (3, "")
        assert "the store does not exist\n  hint: `assay eval` creates one" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_doctor_reports_and_shows_no_key(tmp_path: Path) -> None:
    done = call_main(tmp_path, "doctor", "--model", "mock:echo", "--json")

    said = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert said["endpoints"][0]["verdict"] == "answers"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_keeps_its_results_and_is_resumed(
    number: signal.Signals, tmp_path: Path
) -> None:
    write(tmp_path, held_from=4)
    (tmp_path / "hold").touch()
    process = started(tmp_path)
    wait_until_noted(tmp_path / "begun.txt", 6, process)

    process.send_signal(number)
    assert process.stderr is not None
    said = [process.stderr.readline() for _ in range(2)]
    (tmp_path / "hold").unlink()
    output, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130, errors
    stopping = "stopping: samples in flight have 30 s to end; press Ctrl-C again to stop now\n"
    assert said[1] == stopping
    assert "Traceback" not in errors
    kept = recorded(tmp_path)
    # What was in flight was finished and kept: whatever was scored is recorded.
    assert sorted(kept) == sorted(scored(tmp_path))
    assert len(kept) == 6
    assert "samples       6, 6 judged\n" in output
    resume = errors.strip().splitlines()[-1].split()
    assert resume[:4] == ["assay", "eval", "sums.py", "--resume"]

    done = call_main(tmp_path, *resume[1:])

    assert done.returncode == 0, done.stderr
    assert sorted(recorded(tmp_path)) == sorted(f"q{n}" for n in range(40))
    # Nothing was run twice.
    assert len(scored(tmp_path)) == len(set(scored(tmp_path))) == 40
    assert "samples       40, 40 judged\n" in done.stdout


def test_a_second_signal_stops_now_and_the_store_stays_consistent(tmp_path: Path) -> None:
    write(tmp_path)
    assert call_main(tmp_path, "eval", "sums.py", "--max-samples", "2").returncode == 0
    (tmp_path / "hold").touch()
    process = started(tmp_path)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("run sums-")
    wait_until_noted(tmp_path / "begun.txt", 4, process)

    process.send_signal(signal.SIGINT)
    assert process.stderr.readline().startswith("stopping: ")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert errors.startswith("stopping now\n")
    with Store.open(tmp_path / ".assay", create=False) as store:
        assert [row.status for row in store.runs()] == ["interrupted", "completed"]
        # The two in the scorer: their answers are kept, and scored when the run is resumed.
        assert (store.run().totals.recorded, store.run().totals.failed) == (0, 2)
    (tmp_path / "hold").unlink()
    assert call_main(tmp_path, "eval", "sums.py", "--resume").returncode == 0
    assert len(recorded(tmp_path)) == 40


def test_the_grace_time_ends_what_takes_too_long(tmp_path: Path) -> None:
    write(tmp_path)
    (tmp_path / "hold").touch()
    process = started(tmp_path, "--grace-s", "0.1")
    wait_until_noted(tmp_path / "begun.txt", 2, process)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert "samples in flight have 0.1 s to end" in errors
    assert output.startswith("score         none: no sample was judged")


def test_a_scorer_that_does_not_return_cannot_hold_the_process(tmp_path: Path) -> None:
    blocking = "def score(sample):\n    note('begun.txt', sample)\n    time.sleep(600)\n"
    write(tmp_path)
    text = (tmp_path / "sums.py").read_text() + f"\nimport dataclasses, time\n{blocking}"
    text += "config = dataclasses.replace(config, score_fn=score)\n"
    (tmp_path / "sums.py").write_text(text)
    process = started(tmp_path, "--grace-s", "0.1")
    wait_until_noted(tmp_path / "begun.txt", 1, process)

    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert "next:\n  assay show sums-" in output
    assert " --resume sums-" in errors.strip().splitlines()[-1]


def test_a_killed_run_is_resumed_too(tmp_path: Path) -> None:
    write(tmp_path, held_from=6)
    (tmp_path / "hold").touch()
    process = started(tmp_path)
    wait_until_noted(tmp_path / "begun.txt", 8, process)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    kept = recorded(tmp_path)
    (tmp_path / "hold").unlink()

    done = call_main(tmp_path, "eval", "sums.py", "--resume")

    assert done.returncode == 0, done.stderr
    assert len(recorded(tmp_path)) == 40
    assert set(kept) <= set(recorded(tmp_path))
    again = [name for name in kept if scored(tmp_path).count(name) > 1]
    assert again == []


def test_an_endpoint_out_of_reach_is_3(tmp_path: Path) -> None:
    write(tmp_path)
    text = (tmp_path / "sums.py").read_text()
    (tmp_path / "sums.py").write_text(text.replace('model="echo"', 'model="echo", max_retries=0'))

    done = call_main(
        tmp_path, "eval", "sums.py", "--max-samples", "2", "--model", "vllm:m@http://127.0.0.1:9/v1"
    )

    assert done.returncode == 3
    assert "2 failed (2 endpoint)" in done.stderr


def test_progress_is_shown_on_a_terminal(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    write(tmp_path, latency_s=0.05)
    reading, writing = pty.openpty()
    process = subprocess.Popen(
        build_command("eval", "sums.py"),
        cwd=tmp_path,
        env=build_environment(TERM="xterm"),
        stdout=subprocess.PIPE,
        stderr=writing,
    )
    os.close(writing)
    seen = b""
    while True:
        try:
            chunk = os.read(reading, 65536)
        except OSError:
            break
        if not chunk:
            break
        seen += chunk
    os.close(reading)
    output, _ = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 0
    assert b"/40" in seen
    assert b"mean" in seen
    assert output.startswith(b"score ")
    assert b"\x1b" not in output


def test_resuming_in_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    write(tmp_path)

    done = call_main(tmp_path, "eval", "sums.py", "--resume", "--store", "typo.db")

    assert done.returncode == 3
    assert "the store does not exist" in done.stderr
    assert not (tmp_path / "typo.db").exists()


def test_words_that_are_no_utf_8_end_in_no_traceback(tmp_path: Path) -> None:
    write(tmp_path)
    bad = os.fsdecode(b"x\xff")

    first = run_process(tmp_path, "eval", "sums.py", "--quiet", "--name", bad)
    shown = run_process(tmp_path, "show", bad)
    again = run_process(tmp_path, "eval", "sums.py", "--quiet", "--name", bad, "--resume", bad)

    assert "Traceback" not in first.stderr + shown.stderr + again.stderr
    assert shown.returncode == again.returncode == 2
    assert "run 'x\ufffd' does not exist" in shown.stderr
    assert "run 'x\ufffd' does not exist" in again.stderr
