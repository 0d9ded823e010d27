"""Manifests in one line, for the tests that read them."""

from pathlib import Path

import pytest

from assay.errors import ManifestError
from assay.types.manifest import Manifest

GOOD = """\
definitions:
  teller:
    type: agent
    id: teller
    name: Teller
    role: Bank teller
    goal: Answer questions about accounts.
    model: mock:teller
    evaluation:
      expected_latency_ms: 2000
      golden_dataset_uri: golden.jsonl
      evaluator_model: mock:judge
      grading_rubric:
        - name: accuracy
          description: The amount is right.
          threshold: 0.9
        - name: politeness
          description: It stays polite.
          threshold: 0.8
          strict: false
"""


def written(folder: Path, text: str = GOOD, name: str = "agent.yaml") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str) -> str:
    """What is said of a manifest that is refused, without the folder."""
    with pytest.raises(ManifestError) as caught:
        Manifest.load(written(folder, text))
    return str(caught.value).replace(f"{folder}/", "")
