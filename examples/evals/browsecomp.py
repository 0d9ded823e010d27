"""BrowseComp: hard questions for agents that browse, graded by a judge.

The 10 questions of `browsecomp.csv` are our own and easy; they are encrypted like the public ones.
The public test set is a CSV file that OpenAI publishes with simple-evals:

    assay eval browsecomp --agent my_agent.py:answer --judge openai:gpt-5-mini \
        --dataset browse_comp_test_set.csv

Without `--judge`, answers are compared as texts. That is a lower bound: "Marie Curie" and "Curie"
are then different answers.
"""

import base64
import binascii
import hashlib
from itertools import cycle
from typing import Any

from assay.runner import EvalConfig
from assay.scorers import Criterion, Rubric, exact_answer
from assay.types import Sample, Score

dataset = "browsecomp.csv"

INSTRUCTIONS = """\
Find the answer. End your response with these three lines:
Explanation: why this is the answer, in one or two sentences
Confidence: from 0% to 100%
Exact answer: the answer alone, as short as possible"""

rubric = Rubric(
    name="browsecomp",
    description="whether the final answer of the assistant is the reference answer",
    guidance=(
        "The final answer is what the assistant commits to in the end, usually after the words "
        '"Exact answer:". Compare it with the reference answer and with nothing else: do not '
        "answer the question yourself, and do not doubt the reference. Explanation, effort and "
        "confidence do not count."
    ),
    criteria=(
        Criterion(
            name="correct",
            description="The final answer means the same as the reference answer.",
            levels={
                0: "Another answer, one that leaves something open, several answers, or none.",
                1: "The same answer: only spelling, wording, a unit or a detail that the question "
                "does not ask for differs.",
            },
        ),
    ),
    reference=True,
)
"""How `--judge` grades."""

COMPARE = exact_answer()


def score_fn(sample: Sample) -> Score:
    """Score whether the exact answer is the right one, as a text; `--judge` replaces this."""
    return COMPARE(sample)


def adapter(row: dict[str, Any]) -> Sample:
    """Decrypt a row of the published file, which keeps the questions out of training data."""
    plain = {name: decrypt(row[name], row["canary"]) for name in ("problem", "answer")}
    # The row is replaced as well, so that prompts and agents read the plain question.
    topic = {"problem_topic": row["problem_topic"]} if "problem_topic" in row else {}
    return Sample(
        input=plain | topic,
        prompt=f"{plain['problem']}\n\n{INSTRUCTIONS}",
        ground_truth=plain["answer"],
    )


def decrypt(text: str, canary: str) -> str:
    """Reverse the published encryption: XOR with the repeated SHA-256 of the row's canary."""
    try:
        data = base64.b64decode(text, validate=True)
        return _xor(data, canary).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("the text is not encrypted with the `canary` of its row") from None


def encrypt(text: str, canary: str) -> str:
    """Encrypt a text of your own in the same form."""
    return base64.b64encode(_xor(text.encode("utf-8"), canary)).decode("ascii")


def _xor(data: bytes, canary: str) -> bytes:
    key = hashlib.sha256(canary.encode("utf-8")).digest()
    return bytes(byte ^ mask for byte, mask in zip(data, cycle(key), strict=False))


config = EvalConfig(name="browsecomp", score_fn=score_fn)
