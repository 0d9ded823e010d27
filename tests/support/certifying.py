"""A folder with a manifest and a golden dataset, for tests of certification."""

import json
from pathlib import Path
from typing import Any

from assay.certify import CertificationPlan, CertifySettings, plan_certifications
from assay.types import Endpoint, Sample

RIGHT = {"name": "exact_answer", "description": "It is right.", "threshold": 0.9}
JUDGED = {"name": "polite", "description": "It is polite.", "threshold": 0.5}


def golden(folder: Path, rows: int = 6, name: str = "golden.jsonl") -> Path:
    """Questions whose answers are their numbers."""
    path = folder / name
    lines = [
        json.dumps({"id": f"q{n}", "question": f"Say {n}", "expected": str(n)}) for n in range(rows)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def profile(*rubric: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An evaluation of these criteria."""
    return {
        "golden_dataset_uri": "golden.jsonl",
        "grading_rubric": list(rubric or (RIGHT,)),
        **fields,
    }


def agent(evaluation: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    given = {
        "type": "agent",
        "id": "helper",
        "name": "Helper",
        "role": "One who helps.",
        "goal": "Say what is asked for.",
        "model": "mock:echo",
    }
    return {**given, **({} if evaluation is None else {"evaluation": evaluation}), **fields}


def manifest(folder: Path, evaluation: dict[str, Any] | None, **fields: Any) -> Path:
    """A manifest with one agent, and its golden dataset beside it."""
    if not (folder / "golden.jsonl").exists():
        golden(folder)
    path = folder / "agent.yaml"
    made = agent(evaluation, **fields)
    path.write_text(json.dumps({"definitions": {made["id"]: made}}))
    return path


def planned(
    folder: Path, evaluation: dict[str, Any] | None = None, **settings: Any
) -> CertificationPlan:
    """The plan for the one agent of a manifest."""
    path = manifest(folder, profile() if evaluation is None else evaluation)
    given = {"runner": right, **settings}
    (plan,) = plan_certifications(path, CertifySettings(**given), folder=folder / "fetched")
    return plan


def right(sample: Sample) -> str:
    """An agent that is always right."""
    return sample.messages[-1].text.removeprefix("Say ")


def wrong(sample: Sample) -> str:
    """An agent that never is."""
    return "no idea"


def judge(*scores: float | None, name: str = "polite") -> Endpoint:
    """A judge that gives these scores one after another, then the first again; None: garbage."""
    replies = [
        "garbage"
        if score is None
        else json.dumps({"criteria": {name: {"reason": "so", "evidence": [], "score": score}}})
        for score in scores
    ]
    params = {"replies": replies, "loop": True}
    return Endpoint(provider="mock", model="script", extra_params=params)
