"""The example evaluation, run with the plugin as a user would after copying it."""

import shutil
from pathlib import Path

from evaluation_sessions import call_pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_evaluation_passes_and_is_summed_up(tmp_path: Path) -> None:
    for name in ("test_capitals.py", "capitals.jsonl"):
        shutil.copy(EXAMPLES / name, tmp_path)

    session = call_pytest(tmp_path)

    assert session.status == 0, session.output
    found = {name: round(test["score"], 3) for name, test in session.tests.items()}
    assert found == {"test_capitals": 0.667, "test_answers_are_short": 1.0}
    assert session.tests["test_capitals"]["dataset_fingerprint"] is not None
