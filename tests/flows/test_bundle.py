"""A bundle between two folders, as processes: made in one, repeated in another."""

import json
import os
from pathlib import Path

from assay.stats import compare
from assay.store import Store
from commands import call_main, run_process

FILE = """
from pathlib import Path

from assay.runner import EvalConfig
from assay.types import Endpoint

from grading.rules import is_right

config = EvalConfig(
    endpoint=Endpoint(provider="mock", model="echo"),
    score_fn=is_right,
    prepare_messages=lambda sample: [
        {"role": "system", "content": Path("prompts/system.txt").read_text()},
        {"role": "user", "content": sample.prompt},
    ],
    name="sums",
)
dataset = [{"id": f"q{n}", "question": str(n), "answer": str(n % 3)} for n in range(6)]
"""
RULES = """
def is_right(sample):
    return sample.response == sample.ground_truth
"""


def test_a_colleague_repeats_a_bundle_and_compares_with_its_results(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    (ours / "evals" / "grading").mkdir(parents=True)
    (ours / "prompts").mkdir()
    theirs.mkdir()
    (ours / "evals" / "sums.py").write_text(FILE)
    (ours / "evals" / "grading" / "__init__.py").write_text("")
    (ours / "evals" / "grading" / "rules.py").write_text(RULES)
    (ours / "prompts" / "system.txt").write_text("Repeat the number.")
    assert call_main(ours, "eval", "evals/sums.py", "--quiet").returncode == 0
    made = run_process(ours, "bundle", "latest", "-o", str(theirs / "sums.tar.gz"))
    assert made.returncode == 0, made.stderr
    os.rename(ours, tmp_path / "gone")

    repeated = run_process(theirs, "eval", "--bundle", "sums.tar.gz", "--json")
    assert "evals/grading/rules.py" in repeated.stderr
    assert repeated.returncode == 0, repeated.stderr
    with Store.open(theirs / ".assay" / "assay.db", create=False) as store:
        new, old = store.runs()
        compared = compare(store.run(old.id).results(), store.run(new.id).results())
    assert json.loads(repeated.stdout)["run"] == new.id
    assert compared.pairs == 6
    assert compared.mean_a == compared.mean_b
    assert new.spec.config_fingerprint == old.spec.config_fingerprint
    assert sorted(os.listdir(theirs)) == [".assay", "sums.tar.gz"]
