"""Runs the evaluations of the GitHub Action; writes the report and the text of the comment.

Settings are the environment variables that action.yml sets. The exit status of the evaluations is
an output: the step itself fails only if its inputs are wrong.
"""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path


def main() -> None:
    pytest, evaluation = os.environ["INPUT_PYTEST"], os.environ["INPUT_EVAL"]
    baseline, gate = os.environ["INPUT_BASELINE"], os.environ["INPUT_GATE"]
    if bool(pytest) == bool(evaluation):
        raise SystemExit("set one of the inputs `pytest` and `eval`")
    if pytest and gate:
        raise SystemExit("`gate` is for `eval`; with `pytest`, set a threshold in the tests")
    report = Path(os.environ["INPUT_REPORT"])
    if len(str(report).splitlines()) != 1:
        # It is written to a file of outputs, one on each line.
        raise SystemExit("the input `report` is not the path of a file")
    if report.is_file():
        # Of an earlier step: it must not pass for that of evaluations which end without one.
        report.unlink()
    if pytest:
        status, text = run_pytest(split("pytest", pytest), baseline, report)
    else:
        words, options = split("eval", evaluation), split("gate", gate)
        status, text = run_eval(words, baseline, options, report)
    comment = Path(os.environ["RUNNER_TEMP"]) / "assay-comment.md"
    comment.write_text(text, "utf-8")
    append("GITHUB_STEP_SUMMARY", text)
    outputs = {"status": status, "comment": comment, "report": report if report.is_file() else ""}
    append("GITHUB_OUTPUT", "".join(f"{name}={value}\n" for name, value in outputs.items()))


def split(name: str, text: str) -> list[str]:
    """Return the words of an input, as a shell reads them."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SystemExit(f"the input `{name}` cannot be split into words: {error}") from None


def run_pytest(words: Sequence[str], baseline: str, report: Path) -> tuple[int, str]:
    """Run pytest; return its status and the table of the evaluations."""
    table = Path(os.environ["RUNNER_TEMP"]) / "assay-table.md"
    table.write_text("", "utf-8")
    # Absolute: the root folder of pytest may be another one than that of the repository. In one
    # word: pytest takes a path that is a word of its own for a test path.
    options = [f"--assay-baseline={os.path.abspath(baseline)}"] if baseline else []
    ended = subprocess.run(
        ["pytest", *words, f"--assay-html={os.path.abspath(report)}", *options],
        env={**os.environ, "GITHUB_STEP_SUMMARY": str(table)},
    )
    text = table.read_text("utf-8")
    return ended.returncode, text or f"No evaluation ran: pytest ended with {ended.returncode}.\n"


def run_eval(
    words: Sequence[str], baseline: str, gate: Sequence[str], report: Path
) -> tuple[int, str]:
    """Evaluate, compare with the baseline and gate; return the worst status and all output."""
    before = import_baseline(baseline) if baseline else None
    outputs = [run_assay("eval", *words)]
    runs = find_runs(outputs[0][1])
    for run in runs:
        if before is not None:
            outputs.append(run_assay("compare", before, run))
        if before is not None or gate:
            options = ["--baseline", before] if before is not None else []
            outputs.append(run_assay("gate", run, *gate, *options))
    if runs:
        exported = [*([before] if before is not None else []), *runs]
        run_assay("view", "--export", *exported, "-o", str(report), "--force")
    elif before is not None or gate:
        # Also where `assay eval` passes: a gate that was not applied is not passed.
        text = "`baseline` and `gate` were not applied: `assay eval` printed no id of a run"
        outputs.append((2, f"{text}; leave out --json, --list and --shard\n"))
    return max(status for status, _ in outputs), "\n".join(fence(text) for _, text in outputs)


def import_baseline(baseline: str) -> str:
    """Return the id of the run to compare with. A bundle is recorded in the store first."""
    if not baseline.endswith((".tar.gz", ".tgz")):
        return baseline
    status, text = run_assay("runs", "import", baseline, "--json", show=False)
    runs: list[str] = [] if status else json.loads(text)["runs"]
    if len(runs) != 1:
        raise SystemExit(f"the baseline {baseline} is not a bundle of one run")
    return runs[0]


def run_assay(*words: str, show: bool = True) -> tuple[int, str]:
    """Run a command of assay; return its status and what it prints, which is shown as well."""
    ended = subprocess.run(["assay", *words], stdout=subprocess.PIPE, encoding="utf-8")
    # Of a signal, the number is negative, and the worst status would be that of a passed gate.
    status = ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
    reason = f"assay {words[0]} ended with status {status}; the log has the reason"
    if show:
        print(ended.stdout, flush=True)
    return status, ended.stdout or reason


def find_runs(output: str) -> list[str]:
    """Return the ids in the output of `assay eval`: one run, or one for each agent."""
    if single := re.search(r"^run +(\S+)$", output, re.MULTILINE):
        return [single[1]]
    several = re.search(r"^runs\n((?: +\S.*\n)+)", output, re.MULTILINE)
    return [line.split()[-1] for line in several[1].splitlines()] if several else []


def fence(text: str) -> str:
    """Return text as a code block that nothing in it can end: answers of models are in it."""
    longest = max((len(ticks) for ticks in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}text\n{text.rstrip()}\n{ticks}\n"


def append(variable: str, text: str) -> None:
    with open(os.environ[variable], "a", encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    main()
