"""The recipes of docs/scale.md for Slurm and Kubernetes, run with stand-ins for both."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from assay.errors import AssayError
from assay.store import Store
from misbehaving import PATIENCE_S
from processes import Evaluation, write_rows

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")
COUNT = 3
EVALUATION = """
import asyncio
from pathlib import Path

from assay.runner import EvalConfig


async def answer(sample):
    if sample.index >= 30:
        await asyncio.sleep(0.1)
        while Path("closed").exists():
            await asyncio.sleep(0.01)
    return sample.prompt


config = EvalConfig(agent=answer, score_fn="exact_answer", concurrency=2)
dataset = "data.jsonl"
"""
# As Slurm's: it starts the command in a step of the job, and ends with its status.
SRUN = """#!/bin/sh
echo "$SLURM_ARRAY_TASK_ID: $*" >> srun.log
exec "$@"
"""


def find_block(heading: str, language: str) -> str:
    found = re.search(rf"## {heading}\n.*?```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_rows(tmp_path / "data.jsonl", [f"r{number}" for number in range(60)])
    (tmp_path / "sums.py").write_text(EVALUATION)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "srun").write_text(SRUN)
    (programs / "assay").write_text(f'#!/bin/sh\nexec {sys.executable} -m assay "$@"\n')
    for each in programs.iterdir():
        each.chmod(0o755)
    return tmp_path


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., Evaluation]]:
    started: list[Evaluation] = []

    def begin(*command: str, **environment: str) -> Evaluation:
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        started.append(Evaluation(command, folder, PATH=path, **environment))
        return started[-1]

    yield begin
    for each in started:
        each.close()


@pytest.fixture(params=["Slurm", "Kubernetes"])
def shard(
    request: pytest.FixtureRequest, folder: Path, start: Callable[..., Evaluation]
) -> Callable[[int], Evaluation]:
    """Starts one shard, numbered from 1, as its scheduler does."""
    store = str(folder / "store.db")
    if request.param == "Slurm":
        script = find_block("Slurm", "bash")
        size = re.search(r"#SBATCH --array=1-(\d+)", script)
        assert size is not None
        assert f'--shard "$SLURM_ARRAY_TASK_ID/{size[1]}"' in script
        script = re.sub(r"export ASSAY_STORE=.*", f"export ASSAY_STORE={store}", script)
        script = script.replace(f"ID/{size[1]}", f"ID/{COUNT}")
        # Few at once, so that samples are left when a task is ended.
        (folder / "job.sh").write_text(script.replace("--concurrency 30", "--concurrency 2"))
        return lambda number: start(
            *("bash", "job.sh"), SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID=str(number)
        )
    job = yaml.safe_load(find_block("Kubernetes", "yaml"))["spec"]
    (container,) = job["template"]["spec"]["containers"]
    (text,) = container["args"]
    assert job["completionMode"] == "Indexed"
    assert text.endswith(f'"$((JOB_COMPLETION_INDEX + 1))/{job["completions"]}"')
    text = text.replace(f"/{job['completions']}", f"/{COUNT}")
    return lambda number: start(
        *container["command"], text, JOB_COMPLETION_INDEX=str(number - 1), ASSAY_STORE=store
    )


def count_recorded(folder: Path) -> int:
    try:
        with Store.open(folder / "store.db", create=False) as store:
            return store.run().totals.recorded
    except AssayError:
        return 0  # the store or its run does not exist yet


def test_each_task_executes_its_shard_and_the_run_is_complete(
    folder: Path, shard: Callable[[int], Evaluation], start: Callable[..., Evaluation]
) -> None:
    tasks = [shard(number) for number in range(1, COUNT + 1)]

    assert [each.ended() for each in tasks] == [0] * COUNT, tasks[0].stderr
    assert count_recorded(folder) == 60
    run_id = re.findall(r"run +(nightly-\S+):", tasks[0].stdout)[0]
    wait = start("assay", "runs", "wait", run_id, "--timeout-s", "60", "--store", "store.db")
    assert wait.ended() == 0, wait.stderr
    assert "samples       60, 60 judged" in wait.stdout
    if (log := folder / "srun.log").exists():
        assert len(log.read_text().splitlines()) == COUNT


def test_a_task_that_is_ended_by_its_scheduler_stops_in_time_and_is_started_again(
    folder: Path, shard: Callable[[int], Evaluation]
) -> None:
    (folder / "closed").touch()
    tasks = [shard(number) for number in range(1, COUNT + 1)]
    deadline = time.monotonic() + PATIENCE_S
    # The second half of the samples is held back.
    while count_recorded(folder) < 30:
        assert time.monotonic() < deadline, "too few samples were recorded"
        time.sleep(0.01)

    # To the program itself: Slurm signals the steps of a job, and `exec` replaces the shell.
    program = tasks[1].pid
    for child in Path(f"/proc/{program}/task/{program}/children").read_text().split():
        program = int(child)
    os.kill(program, signal.SIGTERM)
    (folder / "closed").unlink()

    assert [each.ended() for each in tasks] == [0, 130, 0], tasks[1].stderr
    assert re.search(r"Resume with:\n  assay eval sums.py .*--shard 2/3", tasks[1].stderr)
    # Its two samples in flight had time to end.
    assert 30 < count_recorded(folder) < 60
    again = shard(2)
    assert again.ended() == 0, again.stderr
    assert count_recorded(folder) == 60
    assert "completed, 60 of 60 recorded" in again.stdout
