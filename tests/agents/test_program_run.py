"""Runs of programs: their output is kept, and nothing that they started delays or outlives them."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from assay.agents import program_run
from assay.agents.agent import AgentFault
from assay.agents.program_run import ProgramEnd, run_program


async def start(script: str, cwd: Path) -> ProgramEnd:
    variables = {"PATH": os.environ["PATH"]}
    return await run_program(["sh", "-c", script], b"", cwd=cwd, variables=variables)


def run(script: str, cwd: Path) -> ProgramEnd:
    async def scenario() -> ProgramEnd:
        async with asyncio.timeout(60):
            return await start(script, cwd)

    return asyncio.run(scenario())


@pytest.mark.parametrize("status", [0, 3])
def test_a_background_process_that_holds_the_output_delays_no_sample(
    status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_run, "_BACKGROUND_OUTPUT_S", 0.2)

    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(held, True)

    end = run(f"exec 9>held; sleep 600 & echo out; echo err >&2; exit {status}", tmp_path)

    assert (end.status, end.stdout, end.stderr) == (status, b"out\n", b"err\n")
    assert end.seconds < 600
    assert os.read(held, 1) == b""  # ends only when nothing that was started is alive
    os.close(held)


def test_a_process_that_left_the_group_delays_neither_an_answer_nor_a_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_run, "_BACKGROUND_OUTPUT_S", 0.2)
    pid = tmp_path / "pid"
    daemon = "setsid sh -c 'echo $$ > new; mv new pid; exec sleep 600' & "
    wait = "while ! [ -e pid ]; do :; done; echo out;"

    async def cancel() -> None:
        running = asyncio.create_task(start(f"{daemon} {wait} sleep 600", tmp_path))
        while not pid.exists():
            await asyncio.sleep(0.01)
        running.cancel()
        async with asyncio.timeout(60):
            await asyncio.wait([running])
        assert running.cancelled()

    assert run(f"{daemon} {wait}", tmp_path).stdout == b"out\n"
    os.kill(int(pid.read_text()), signal.SIGKILL)
    pid.unlink()
    asyncio.run(cancel())
    os.kill(int(pid.read_text()), signal.SIGKILL)


def test_output_of_a_background_process_is_kept_if_it_ends_soon(tmp_path: Path) -> None:
    ready = "while ! [ -e go ]; do :; done"

    end = run(f"({ready}; echo later) & echo first; touch go", tmp_path)

    assert end.stdout == b"first\nlater\n"


def test_a_program_that_closes_its_output_is_waited_for(tmp_path: Path) -> None:
    end = run("exec >&- 2>&-; touch done; exit 4", tmp_path)

    assert (end.status, end.stdout) == (4, b"")
    assert (tmp_path / "done").exists()


@pytest.mark.parametrize("script", ["yes", "yes >&2", "yes & exit", "yes & sleep 600"])
def test_output_without_end_is_refused(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_run, "_MAX_OUTPUT_BYTES", 1_000_000)

    with pytest.raises(AgentFault, match="wrote more than 1,000,000 bytes"):
        run(script, tmp_path)
