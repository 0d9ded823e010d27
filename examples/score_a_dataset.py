"""Score answers that are already in a file, and say how many could not be judged.

    python score_a_dataset.py [dataset.jsonl]

Each row of the dataset has a question, the answer to expect and the reply that a model gave.
"""

import sys
from pathlib import Path
from typing import Any

from assay import Message, Sample, load_samples
from assay.scorers import exact_answer


def read_row(row: dict[str, Any]) -> Sample:
    """Make a sample of a row: needed because `reply` is a column of our own."""
    return Sample(
        id=row["id"],
        input=row,
        prompt=[
            Message(role="user", content=row["question"]),
            Message(role="assistant", content=row["reply"]),
        ],
        ground_truth=row.get("answer"),
    )


def main(dataset: Path) -> None:
    scorer = exact_answer()
    rewards = []
    not_judged = 0
    for sample in load_samples(dataset, adapter=read_row):
        sample.score = scorer(sample)
        print(f"{sample.id}: {sample.reward} ({sample.score.reason})")
        if sample.reward is None:
            not_judged += 1
        else:
            rewards.append(sample.reward)
    mean = sum(rewards) / len(rewards) if rewards else None
    print(f"mean {mean} over {len(rewards)} judged samples; {not_judged} not judged")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("capitals.jsonl"))
