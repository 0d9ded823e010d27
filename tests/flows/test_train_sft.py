"""`assay train sft` as a process: stopped by Ctrl-C, and gone on with."""

import json
import shlex
import signal
import subprocess
from pathlib import Path

from commands import build_command, call_main
from tiny_models import tiny_model


def test_ctrl_c_keeps_a_checkpoint_and_the_command_to_go_on_works(tmp_path: Path) -> None:
    tiny_model(tmp_path, "smollm2")
    turns = [{"role": "user", "content": "one?"}, {"role": "assistant", "content": "hello"}]
    (tmp_path / "chats.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    words = "train sft chats.jsonl --model tiny-smollm2 -o out --device cpu --schedule constant"
    running = subprocess.Popen(
        build_command(*words.split(), "--num-steps", "1000000"),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stderr is not None
    first = running.stderr.readline()

    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=300)

    assert first.startswith("1/1000000 loss ")
    assert running.returncode == 130
    assert "samples       1 read, 1 sequences to train on" in out
    command = err.splitlines()[-1].strip()
    done = len((tmp_path / "out" / "metrics.jsonl").read_text().splitlines())
    again = [*shlex.split(command)[1:], "--json"]
    again[again.index("--num-steps") + 1] = str(done + 1)
    resumed = call_main(tmp_path, *again)
    assert resumed.returncode == 0, resumed.stderr
    assert json.loads(resumed.stdout)["steps"] == done + 1
