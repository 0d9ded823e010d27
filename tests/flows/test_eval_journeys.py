"""A new user in an empty folder: a CSV file and prompts, then models and prompts, by commands."""

import json
import shlex
from pathlib import Path

from commands import run_process

CSV = "question,style,answer\n" + "".join(
    f"{word},short,{word}\n" for word in "one two three four five six seven eight".split()
)


def test_a_csv_file_and_two_prompts(tmp_path: Path) -> None:
    (tmp_path / "questions.csv").write_text(CSV)
    (tmp_path / "plain.txt").write_text("{question}\n")
    (tmp_path / "wordy.txt").write_text('Be {style}, as in {{"like": this}}: {question}\n')
    words = ("questions.csv", "--agent", "mock:echo", "--scorer", "exact_answer")

    wrong = run_process(tmp_path, "eval", *words, "--prompt", "plan.txt")
    alone = run_process(tmp_path, "eval", *words, "--prompt", "plain.txt")
    prompts = ("--prompt", "plain.txt", "--prompt", "wordy.txt")
    both = run_process(tmp_path, "eval", *words, *prompts, "--resume")

    assert (wrong.returncode, alone.returncode, both.returncode) == (2, 0, 0)
    assert alone.stdout.startswith("score         1.000 [")
    table = both.stdout.splitlines()
    assert table[1].startswith("mock:echo plain  1.000 [")
    assert table[2].startswith("mock:echo wordy  0.000 [")
    assert table[2].endswith("  0.0078  worse")
    # The first run of the table is the one that was there.
    assert alone.stderr.split()[1] in both.stdout

    compare = next(line for line in table if line.startswith("  assay compare "))
    compared = run_process(tmp_path, *compare.split()[1:])
    assert compared.returncode == 0
    assert "prompt" in compared.stdout
    again = run_process(tmp_path, "score", "latest", "--scorer", "contains_answer", "--json")
    assert json.loads(again.stdout)["summary"]["score"]["interval"]["mean"] == 1.0


def test_two_models_and_two_prompts(tmp_path: Path) -> None:
    (tmp_path / "questions.csv").write_text(CSV)
    (tmp_path / "models.py").write_text(
        "from assay import Endpoint\n"
        "fixed = Endpoint(provider='mock', model='fixed', extra_params={'text': 'one'})\n"
    )
    (tmp_path / "plain.txt").write_text("{question}\n")
    (tmp_path / "chat.yaml").write_text(
        "- role: system\n  content: Be {style}.\n- role: user\n  content: '{question}'\n"
    )
    words = ["eval", "questions.csv", "--scorer", "exact_answer", "--seed", "1", "--repeats", "2"]
    words += ["--agent", "mock:echo", "--agent", "models.py:fixed"]
    words += ["--prompt", "plain.txt", "--prompt", "chat.yaml"]

    shown = run_process(tmp_path, *words)
    report = json.loads(run_process(tmp_path, *words, "--resume", "--json").stdout)

    assert shown.returncode == report["exit_status"] == 0
    assert all(len(line) <= 80 for line in shown.stdout.splitlines()[:6])
    assert "4 of 4: models.py:fixed chat\n" in shown.stderr
    assert [(run["agent"], run["prompt"]) for run in report["runs"]] == [
        ("mock:echo", "plain"),
        ("mock:echo", "chat"),
        ("models.py:fixed", "plain"),
        ("models.py:fixed", "chat"),
    ]
    means = [run["summary"]["score"]["interval"]["mean"] for run in report["runs"]]
    assert means == [1.0, 1.0, 0.125, 0.125]
    conclusions = [found["conclusion"] for found in report["comparisons"].values()]
    assert conclusions == ["no difference shown", "worse", "worse"]
    listed = run_process(tmp_path, "runs")
    assert [listed.stdout.count(name) for name in ("mock:echo", "models.py:fixed")] == [2, 2]


def test_ctrl_c_keeps_the_runs_and_the_printed_command_completes_them(tmp_path: Path) -> None:
    (tmp_path / "questions.csv").write_text(CSV)
    (tmp_path / "agents.py").write_text(
        "import os, signal, threading\n"
        "def answer(sample):\n"
        "    if not os.path.exists('interrupted'):\n"
        "        open('interrupted', 'w').close()\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        threading.Event().wait()\n"
        "    return sample.messages[-1].text\n"
    )
    words = ("eval", "questions.csv", "--scorer", "exact_answer", "--grace-s", "0")
    agents = ("mock:echo", "agents.py:answer", "cmd:cat")

    first = run_process(tmp_path, *words, *(word for each in agents for word in ("--agent", each)))
    resume = first.stderr.split("Resume with:\n  ")[1].splitlines()[0]
    second = run_process(tmp_path, *shlex.split(resume)[1:])

    assert (first.returncode, second.returncode) == (130, 0)
    rows = first.stdout.splitlines()[1:4]
    assert rows[0].startswith("mock:echo         1.000 [")
    assert rows[1].endswith("  interrupted")
    assert rows[2].split(maxsplit=1)[1] == "not started"
    ids = [line.split()[-1] for line in first.stdout.splitlines() if line.startswith("  mock:echo")]
    assert ids[0] in second.stdout
    assert [row.rsplit("  ", 1)[1].strip() for row in second.stdout.splitlines()[1:4]] == [
        "first",
        "not shown",
        "not shown",
    ]
