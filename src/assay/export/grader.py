"""A grader template for OpenAI's reinforcement fine-tuning."""

import json

_SOURCE = '''\
def grade(sample, item):
    """1.0 when the answer is the reference answer, else 0.0. Put your own rule here."""
    answer = (sample.get("output_text") or "").strip()
    reference = item.get("reference_answer")
    return 1.0 if reference is not None and answer == str(reference).strip() else 0.0
'''


def build_grader_stub() -> str:
    """Return the JSON of a `python` grader that compares with `reference_answer`."""
    grader = {"type": "python", "name": "reference_answer", "source": _SOURCE}
    return f"{json.dumps(grader, indent=2)}\n"
