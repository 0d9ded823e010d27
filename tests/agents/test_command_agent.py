"""Command lines as agents: no shell, an exit status that counts, and no program left behind."""

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from assay.agents.agent import AgentFault, RunContext
from assay.agents.command_agent import CommandAgent, render_prompt
from assay.agents.program_run import ProgramEnd
from assay.errors import ConfigError
from assay.types import Sample, Trajectory
from make import asked, said


def command(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def answer(code: str, sample: Sample | None = None, timeout_s: float = 30) -> str:
    async def run() -> str:
        agent = CommandAgent(command(code))
        asked = sample or Sample(prompt="2 + 2?")
        async with asyncio.timeout(timeout_s):
            found = await agent.run(asked, RunContext(messages=asked.messages))
        assert found.duration is not None
        assert found.duration > 0
        return found.messages[-1].text

    return asyncio.run(run())


def run_command(line: str, prompt: str = "2 + 2?") -> Trajectory:
    asked = Sample(prompt=prompt)
    return asyncio.run(CommandAgent(line).run(asked, RunContext(messages=asked.messages)))


def test_the_prompt_comes_on_stdin_and_the_answer_goes_to_stdout() -> None:
    assert answer("print('said:', input())") == "said: 2 + 2?"


def test_several_messages_come_after_their_roles() -> None:
    sample = Sample(prompt=[asked("Hi"), said("Hello"), asked("2 + 2?")])

    assert render_prompt(sample.messages) == "user: Hi\n\nassistant: Hello\n\nuser: 2 + 2?"


def test_no_shell_reads_the_command_line() -> None:
    assert run_command("echo $HOME; ls").messages[-1].text == "$HOME; ls"
    assert answer("import sys; print(sys.argv)") == "['-c']"


def test_a_program_need_not_read_its_prompt() -> None:
    long = Sample(prompt="x" * 1_000_000)

    assert answer("print('done')", long) == "done"


def test_any_exit_status_but_0_is_a_failure_that_shows_its_output() -> None:
    with pytest.raises(
        AgentFault, match=r"the program exited with status 3; stderr: …x+the key is wrong"
    ):
        answer("import sys; sys.stderr.write('x' * 5000 + 'the key is wrong'); sys.exit(3)")
    with pytest.raises(AgentFault, match="status 1; stdout: API Error: 400"):
        answer("import sys; print('API Error: 400'); sys.exit(1)")
    with pytest.raises(AgentFault, match="; its output is empty"):
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


def test_the_prompt_replaces_its_field_in_the_command() -> None:
    line = shlex.join([sys.executable, "-c", "import sys; print(sys.argv[1:], sys.stdin.read())"])

    found = run_command(f"{line} --ask={{prompt}}", "what's $HOME; {workspace}?")

    assert found.messages[-1].text == str(["--ask=what's $HOME; {workspace}?"]) + " "


def test_each_sample_has_a_folder_of_its_own_that_is_removed() -> None:
    code = "import os; print(os.getcwd(), os.environ['ASSAY_WORKSPACE'], os.listdir())"
    code += "; open('note', 'w').close()"

    texts = [answer(code), answer(code)]

    folders = [text.split()[0] for text in texts]
    assert all(text.split()[1:] == [text.split()[0], "[]"] for text in texts)
    assert folders[0] != folders[1]
    assert not any(Path(folder).exists() for folder in folders)


def test_files_and_modules_of_the_current_folder_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_command_agent.py").write_text("import sys; print('ran', sys.argv[1:])")
    (tmp_path / "run.sh").write_text("#!/bin/sh\necho shell $1\n")
    (tmp_path / "run.sh").chmod(0o755)
    (tmp_path / "data.txt").write_text("x")

    by_file = run_command(f"{sys.executable} my_command_agent.py data.txt")
    by_module = run_command(f"{sys.executable} -m my_command_agent")
    by_script = run_command("./run.sh one")

    assert by_file.messages[-1].text == f"ran {[str(tmp_path / 'data.txt')]}"
    assert by_module.messages[-1].text == "ran []"
    assert by_script.messages[-1].text == "shell one"


def test_modules_are_found_from_the_current_folder_and_never_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "sitecustomize.py").write_text("print('of the row')")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "my_library.py").write_text("print('of the project')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", "lib", ""]))

    agent = CommandAgent(f"{sys.executable} -c 'import my_library'")
    sample = Sample(prompt="?")
    context = RunContext(messages=sample.messages, workspace=tmp_path / "workspace")
    found = asyncio.run(agent.run(sample, context))

    assert found.messages[-1].text == "of the project"


@pytest.mark.parametrize(
    ("output", "roles", "text"),
    [
        ('[{"role": "assistant", "content": "four"}]', ["user", "assistant"], "four"),
        (
            '{"messages": [{"role": "user", "content": "2 + 2?"},'
            ' {"role": "assistant", "content": "four"}]}',
            ["user", "assistant"],
            "four",
        ),
        ('{"capital": "Paris"}', ["user", "assistant"], '{"capital": "Paris"}'),
        ('{"answer": "four"}', ["user", "assistant"], '{"answer": "four"}'),
        ("[1, 2]", ["user", "assistant"], "[1, 2]"),
        ("{not json", ["user", "assistant"], "{not json"),
    ],
)
def test_messages_as_json_are_read_and_other_json_is_the_answer(
    output: str, roles: list[str], text: str
) -> None:
    found = run_command(shlex.join(["echo", output]))

    assert [message.role for message in found.messages] == roles
    assert found.messages[-1].text == text


def test_a_prompt_that_cannot_be_an_argument_is_a_failure_of_the_agent() -> None:
    with pytest.raises(AgentFault, match="could not be started"):
        run_command("echo {prompt}", "a\0b")


@pytest.mark.parametrize(
    "line",
    [
        "./agent.sh",
        "sh agent.sh --fast",
        "sh -c 'cd /; sh agent.sh'",
        f"{sys.executable} -m agent_module",
        f"{sys.executable} -m agent_package",
        "cat --config agent.yaml",
    ],
)
def test_the_identity_covers_the_files_that_the_command_names(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent_package").mkdir()
    names = ("agent.sh", "agent_module.py", "agent_package/__main__.py", "agent.yaml")
    for name in names:
        (tmp_path / name).write_text("#!/bin/sh\necho one\n")
        (tmp_path / name).chmod(0o755)
    first, same = CommandAgent(line).identity, CommandAgent(line).identity

    for name in names:
        (tmp_path / name).write_text("#!/bin/sh\necho two\n")

    assert first == same != CommandAgent(line).identity
    assert CommandAgent(line).identity != CommandAgent(f"{line} x").identity


def test_installed_programs_and_large_files_are_not_part_of_the_identity(tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    with model.open("wb") as file:
        file.truncate(17 * 1024 * 1024)

    assert len(CommandAgent(f"{sys.executable} -c 1").identity.split()) == 2
    assert len(CommandAgent(f"echo {model}").identity.split()) == 2


def test_a_program_that_cannot_be_started_is_refused_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "agent.sh").write_text("echo one\n")
    (tmp_path / "my agent.sh").write_text("#!/bin/sh\necho one\n")
    (tmp_path / "my agent.sh").chmod(0o755)

    for command, message in (
        ("./agent.sh", "'./agent.sh' is not executable\n  hint: run chmod +x ./agent.sh"),
        ("./my agent.sh", "quote a path with spaces: cmd:'./my agent.sh'"),
        ("./agents.sh", "'./agents.sh' was not found\n  hint: check its path"),
        ("no-such-program-x", "check that it is in PATH"),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            CommandAgent(command)


def test_the_signal_that_killed_a_program_is_named() -> None:
    with pytest.raises(AgentFault, match="the program was killed by SIGKILL; its output is empty"):
        answer("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(AgentFault, match="the program was killed by signal 40; its output"):
        ProgramEnd(-40, b"", b"").raise_for_status()


def test_output_that_is_not_utf_8_is_counted() -> None:
    code = "import sys; sys.stdout.buffer.write('L\\xe9ma \\ufffd'.encode('latin-1', 'replace'))"
    wrong = run_command(command(code))
    right = run_command(command("print('L\\xe9ma \\ufffd')"))

    assert wrong.messages[-1].text == "L\ufffdma ?"
    assert (wrong.model_extra or {}).get("dropped") == {"output that is not UTF-8": 1}
    assert not (right.model_extra or {}).get("dropped")


def test_output_that_is_not_utf_8_is_counted_beside_dropped_fields() -> None:
    text = '[{"role": "assistant", "content": "L\\xe9ma", "unknown": 1}, 7]'
    found = run_command(command(f"import sys; sys.stdout.buffer.write('{text}'.encode('latin-1'))"))

    dropped = (found.model_extra or {})["dropped"]
    assert dropped["output that is not UTF-8"] == 1
    assert len(dropped) > 1
