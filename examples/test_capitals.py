"""An evaluation as a pytest test: were the capitals in `capitals.jsonl` answered right?

    pytest examples/test_capitals.py

Run in CI, it fails when fewer than six in ten answers are right, and names each answer that
could not be judged.
"""

from assay import EvaluateResult, Message, Sample, evaluation_test
from assay.scorers import exact_answer

judge = exact_answer()


@evaluation_test("capitals.jsonl", max_samples=3, threshold=0.6)
def test_capitals(sample: Sample, reply: str) -> object:
    """The answers were given earlier and stand in the file; no model is asked."""
    answered = [*sample.messages, Message(role="assistant", content=reply)]
    return judge(Sample(prompt=answered, ground_truth=sample.ground_truth))


@evaluation_test("capitals.jsonl", max_samples=3, batch=True)
def test_answers_are_short(reply: list[str]) -> list[EvaluateResult]:
    """All samples in one call: a good reply is a few words long."""
    return [
        EvaluateResult(score=float(len(each.split()) <= 4), reason=f"{len(each.split())} words")
        for each in reply
    ]
