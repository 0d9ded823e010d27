"""`assay init`: write a small project with a dataset, an agent, an evaluation and its CI."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from assay.errors import DISTRIBUTION, ConfigError

from .arguments import add_flag, add_report_options
from .output import print_report, write_whole
from .resume import join_command

_DATASET = """\
id,question,answer
small,Add 2 and 3.,5
carry,Add 17 and 25.,42
zero,Add 0 and 9.,9
large,Add 1200 and 34.,1234
negative,Add -4 and 10.,6
three,"Add 1, 2 and 3.",6
"""

_AGENT = '''\
"""The agent under test. Replace the body of `answer` by a call of your own agent."""

import re


def answer(sample):
    question = sample.messages[-1].text
    return str(sum(int(number) for number in re.findall(r"-?\\d+", question)))
'''

_EVALUATION = '''\
"""The evaluation: `assay eval evaluation.py` runs it and records the results."""

from agent import answer
from assay.runner import EvalConfig
from assay.scorers import exact_answer

config = EvalConfig(agent=answer, score_fn=exact_answer(), name="sums")
dataset = "questions.csv"
'''

_TEST = '''\
"""The same evaluation as a test: `pytest` fails when the mean score is below the threshold."""

from agent import answer
from assay import evaluation_test


@evaluation_test(samples="questions.csv", agent=answer, threshold=0.8)
def test_sums(response, ground_truth):
    return response == ground_truth
'''

_WORKFLOW = f"""\
name: evaluation

on:
  push:
  pull_request:

permissions:
  contents: read

jobs:
  evaluate:
    runs-on: ubuntu-latest
    timeout-minutes: 30
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - run: pip install {DISTRIBUTION} pytest
      - run: pytest
"""

_COMMANDS = (
    "assay eval evaluation.py",
    "assay show latest",
    "assay eval questions.csv --agent agent.py:answer --scorer contains_answer",
    "pytest",
)

_README = f"""\
# Evaluation

`agent.py` answers the questions of `questions.csv`. These commands evaluate it:

```console
{chr(10).join(f"$ {command}" for command in _COMMANDS)}
```

1. Run the evaluation of `evaluation.py` and record it in `.assay/`.
2. Show the recorded run, sample by sample.
3. Evaluate the dataset directly, with another scorer. `--agent openai:gpt-5` evaluates a model.
4. Run the evaluation as a test, which is also run in CI by `.github/workflows/evaluation.yml`.
"""

PROJECT_FILES = {
    "README.md": _README,
    "questions.csv": _DATASET,
    "agent.py": _AGENT,
    "evaluation.py": _EVALUATION,
    "test_agent.py": _TEST,
    ".github/workflows/evaluation.yml": _WORKFLOW,
    ".gitignore": ".assay/\n__pycache__/\n",
}
"""The text of each file of the project."""

# Most folders have these already. The project works with any content of them.
_KEPT_FILES = ("README.md", ".gitignore")


def configure(parser: ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument(
        "folder",
        nargs="?",
        default=".",
        metavar="FOLDER",
        help="folder for the project (default: the current one)",
    )
    add_flag(parser, "--force", "overwrite files that exist, but for README.md and .gitignore")
    add_report_options(parser)


def main(args: Namespace) -> int:
    """Exit status: 0 the project was written, 2 a file exists or cannot be written.

    An existing README.md or .gitignore is kept, with --force as well.
    """
    folder = Path(args.folder)
    kept = [name for name in _KEPT_FILES if (folder / name).exists()]
    files = {name: text for name, text in PROJECT_FILES.items() if name not in kept}
    existing = [name for name in files if (folder / name).exists()]
    if existing and not args.force:
        raise ConfigError(
            f"{', '.join(existing)} already {'exists' if len(existing) == 1 else 'exist'}",
            where=str(folder),
            hint="name another folder, or pass --force to overwrite",
        )
    for name, text in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path.parent} cannot be made: {error.strerror}") from None
        with write_whole(path) as unfinished:
            unfinished.write_text(text, "utf-8")
        # A project is shared, unlike results: readable as any new file of the user.
        path.chmod(0o644)
    is_here = folder.resolve() == Path.cwd().resolve()
    commands = [*([] if is_here else [join_command(["cd", str(folder)])]), *_COMMANDS]
    lines = [
        f"wrote {len(files)} files to {folder}:",
        *(f"  {name}" for name in files),
        *([f"kept your {' and '.join(kept)}"] if kept else []),
        "next:",
        *(f"  {command}" for command in commands),
    ]
    plain = {"folder": str(folder), "files": list(files), "kept": kept, "next": commands}
    print_report(args, lines, plain)
    return 0
