"""Fix tests: a coding agent repairs a program until its tests pass.

The 10 programs of `fix_tests.jsonl` are our own. A row has a `question`, the `files` of the agent's
workspace and the `check_files` that decide: the tests of the agent and some that it never sees.

    assay eval fix_tests --agent claude-code --model anthropic:claude-sonnet-4-5

Rows of the public HumanEvalFix are read as well:

    assay eval fix_tests --agent codex --model openai:gpt-5 --dataset humanevalpack.jsonl

This file is data/python/data/humanevalpack.jsonl of bigcode/humanevalpack. By its name on the hub
the dataset cannot be read: it needs a script, and no code of a dataset is run.
"""

from typing import Any

from assay.runner import EvalConfig
from assay.scorers import check_passed
from assay.types import Sample, Score

dataset = "fix_tests.jsonl"

SECONDS = 60
"""How long the tests may take. A program that never ends fails, with the line where it was."""

# A cache of its own: a file that the agent changed twice in a second could be read from another.
CHECK = (
    "python3 -X pycache_prefix=.check-cache -c 'import faulthandler, runpy; "
    f"faulthandler.dump_traceback_later({SECONDS}, exit=True); "
    'runpy.run_path("test_task.py", run_name="__main__")\''
)


def score_fn(sample: Sample) -> Score:
    """Score 1 if the tests pass in the workspace that the agent left, else 0."""
    return check_passed(sample)


def adapter(row: dict[str, Any]) -> Sample | dict[str, Any]:
    """Read a row of this evaluation, or one of HumanEvalFix."""
    if "buggy_solution" not in row:
        return row
    start = "from solution import *\n\n"
    files = {
        "solution.py": row["declaration"] + row["buggy_solution"],
        "test_task.py": start + row["example_test"],
    }
    prompt = (
        f"{row['entry_point']} in solution.py is wrong. Fix it so that the tests in test_task.py "
        "pass. Run them with: python3 test_task.py"
    )
    return Sample(
        id=row["task_id"],
        input={"files": files, "check_files": {"test_task.py": start + row["test"]}},
        prompt=prompt,
        ground_truth=row["canonical_solution"],
    )


config = EvalConfig(name="fix_tests", check=CHECK, score_fn=score_fn)
