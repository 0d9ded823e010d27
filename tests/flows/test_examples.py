"""The examples as a user would run them after copying them."""

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / script), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_every_example_is_run_here() -> None:
    # `test_pytest_example.py` runs the evaluation, with pytest.
    assert sorted(path.name for path in EXAMPLES.glob("*.py")) == [
        "score_a_dataset.py",
        "test_capitals.py",
    ]


def test_score_a_dataset_scores_the_file_beside_it(tmp_path: Path) -> None:
    done = run("score_a_dataset.py", folder=tmp_path)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "france: 1.0 (answer 'Paris.' is the expected 'Paris')",
        "australia: 0.0 (answer 'Sydney' is not the expected 'Canberra')",
        "bolivia: 1.0 (answer 'sucre' is the expected 'Sucre')",
        "moon: None (no ground truth)",
        "mean 0.6666666666666666 over 3 judged samples; 1 not judged",
    ]


def test_score_a_dataset_takes_another_file(tmp_path: Path) -> None:
    (tmp_path / "own.jsonl").write_text('{"id": "a", "question": "?", "reply": "x"}\n')

    done = run("score_a_dataset.py", "own.jsonl", folder=tmp_path)

    assert done.stdout.endswith("mean None over 0 judged samples; 1 not judged\n")
