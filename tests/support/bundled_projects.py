"""A small project with an evaluation, its run, and the bundle of the run."""

import json
import sys
import tarfile
from pathlib import Path

from assay.cli import main

FILE = """
from pathlib import Path

from assay.runner import EvalConfig
from assay.types import Endpoint

import made_up_helper

PROMPT = (Path(__file__).parent / "prompts" / "system.txt").read_text()

def score(sample):
    return made_up_helper.is_right(sample)

config = EvalConfig(endpoint=Endpoint(provider="mock", model="echo"), score_fn=score, name="sums")
dataset = "rows.jsonl"
"""
HELPER = """
def is_right(sample):
    return sample.response == sample.ground_truth
"""
ROWS = [{"id": f"q{n}", "question": str(n), "answer": str(n % 3)} for n in range(6)]
MODULES = ("made_up_evaluation", "made_up_helper")


def forget_modules() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


def write_project(folder: Path) -> None:
    """Write an evaluation into `evals/` of a folder."""
    evals = folder / "evals"
    (evals / "prompts").mkdir(parents=True)
    (evals / "made_up_evaluation.py").write_text(FILE)
    (evals / "made_up_helper.py").write_text(HELPER)
    (evals / "prompts" / "system.txt").write_text("Answer.")
    (evals / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))


def run(*options: str) -> None:
    assert main(["eval", "evals/made_up_evaluation.py", "--quiet", *options]) == 0
    forget_modules()


def bundle(*options: str, name: str = "x.tar.gz") -> Path:
    assert main(["bundle", "latest", "-o", name, *options]) == 0
    return Path(name)


def names(path: Path) -> list[str]:
    with tarfile.open(path) as archive:
        return archive.getnames()
