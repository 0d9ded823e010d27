"""Command lines as agents: no shell, an exit status that counts, and no program left behind."""

import asyncio
import os
import shlex
import sys
from pathlib import Path

import pytest

from assay.agents.certified_agent import AgentFault
from assay.agents.command_agent import CommandAgent, render_prompt
from assay.errors import ConfigError
from assay.types import Sample
from make import asked, said


def command(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def answer(code: str, sample: Sample | None = None, timeout_s: float = 30) -> str:
    async def run() -> str:
        agent = CommandAgent(command(code))
        async with asyncio.timeout(timeout_s):
            found = await agent.answer(sample or Sample(prompt="2 + 2?"), seed=None)
        assert found.seconds > 0
        return found.trajectory.messages[-1].text

    return asyncio.run(run())


def test_the_prompt_comes_on_stdin_and_the_answer_goes_to_stdout() -> None:
    assert answer("print('said:', input())") == "said: 2 + 2?"


def test_several_messages_come_after_their_roles() -> None:
    sample = Sample(prompt=[asked("Hi"), said("Hello"), asked("2 + 2?")])

    assert render_prompt(sample) == "user: Hi\n\nassistant: Hello\n\nuser: 2 + 2?"


def test_no_shell_reads_the_command_line() -> None:
    assert asyncio.run(CommandAgent("echo $HOME; ls").answer(Sample(prompt="?"), seed=None))
    assert answer("import sys; print(sys.argv)") == "['-c']"


def test_a_program_need_not_read_its_prompt() -> None:
    long = Sample(prompt="x" * 1_000_000)

    assert answer("print('done')", long) == "done"


def test_any_exit_status_but_0_is_a_failure_that_tells_stderr() -> None:
    with pytest.raises(
        AgentFault, match=r"the program exited with status 3; stderr: …x+the key is wrong"
    ):
        answer("import sys; sys.stderr.write('x' * 5000 + 'the key is wrong'); sys.exit(3)")
    with pytest.raises(AgentFault, match="; stderr is empty"):
        answer("import sys; sys.exit(1)")


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    code = (
        f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid()));"
        "print(end='', flush=True); time.sleep(600)"
    )

    with pytest.raises(TimeoutError):
        answer(code, timeout_s=0.5)

    # The wait for its end is part of the call: it is gone by now, if it ever began.
    if mark.exists() and mark.read_text():
        with pytest.raises(ProcessLookupError):
            os.kill(int(mark.read_text()), 0)


def test_a_program_that_never_stops_talking_is_ended() -> None:
    with pytest.raises(AgentFault, match="wrote more than 10,000,000 bytes"):
        answer("while True: print('x' * 100000)")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "no command"),
        ("no-such-program-here", "was not found"),
        ("echo 'x", "the command line cannot be parsed"),
    ],
)
def test_a_command_that_cannot_be_run_is_refused_before_a_call(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CommandAgent(line)
