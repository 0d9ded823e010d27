"""GSM8K: grade-school word problems, scored by the final number.

The 15 problems of `gsm8k.jsonl` are our own, in the format of GSM8K. The public test set:

    assay eval gsm8k --agent openai:gpt-5 --dataset openai/gsm8k:main --split test
"""

from typing import Any

from assay.runner import EvalConfig
from assay.scorers import exact_answer, extract_number
from assay.types import Sample, Score

dataset = "gsm8k.jsonl"

INSTRUCTIONS = (
    "Solve the problem step by step. Write the result as a number, without its unit, on a last "
    "line of the form: #### NUMBER"
)


def adapter(row: dict[str, Any]) -> dict[str, Any]:
    """Ask the question of a row with the instructions."""
    return {"prompt": f"{row['question']}\n\n{INSTRUCTIONS}", "answer": row["answer"]}


COMPARE = exact_answer(extract=extract_number)


def score_fn(sample: Sample) -> Score:
    """Score whether the number that the response gives as its answer is the right one."""
    # The ground truth is a worked solution, of which the number after `####` is compared.
    return COMPARE(sample)


config = EvalConfig(name="gsm8k", score_fn=score_fn)
