"""Built-in metrics with their direction and range. No model calls, no I/O."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.errors import ConfigError
from assay.registry import find_plugin, list_names
from assay.types import EvaluateResult, Sample, refuse_json_constant

from .answer import exact_answer, extract_number, remove_thoughts
from .caller import ScoreFunction
from .scorer_type import Scorer

NamedScorer = ScoreFunction | str
"""A scorer, or the name of a metric."""


@dataclass(frozen=True)
class RegisteredMetric:
    """A scorer with a name, a direction and a range. Pass it wherever a scorer is expected."""

    name: str
    scorer: ScoreFunction
    about: str
    direction: Literal["max", "min"] = "max"
    """Whether high or low values are good."""

    range: tuple[float, float] = (0.0, 1.0)
    """The lowest and the highest value it returns."""

    def __call__(self, sample: Sample) -> object:
        """Score a sample."""
        return self.scorer(sample)


def find_metric(name: str) -> RegisteredMetric | None:
    """Return the metric of that name, or None. Raises `ConfigError` for an unusable plug-in.

    A plug-in is a `RegisteredMetric`, or a function from a sample to a score between 0 and 1.
    """
    if name in METRICS:
        return METRICS[name]
    plugin = find_plugin("assay.scorers", name)
    if plugin is None:
        return None
    found = plugin.value
    if isinstance(found, RegisteredMetric):
        return found
    if not callable(found) or isinstance(found, type):
        raise plugin.build_error(f"the scorer is of type `{type(found).__name__}`, not a function")
    return RegisteredMetric(name, found, f"a metric of {plugin.origin}")


def _build_response_scorer(
    name: str, judge: Callable[[str, list[str]], EvaluateResult], *, truth: bool
) -> Scorer:
    """Wrap a comparison of the response with the ground truth; a sample without is unscored."""

    def score(sample: Sample) -> EvaluateResult:
        if not any(message.role == "assistant" for message in sample.messages):
            return EvaluateResult(is_score_valid=False, reason="no turn by the assistant")
        if not truth:
            return judge(sample.response, [])
        given = sample.ground_truth
        listed = given if isinstance(given, list | tuple) else [given]
        # Numbers are compared as they are written; a bool has no usual spelling in an answer.
        usable = all(
            isinstance(each, str | int | float) and not isinstance(each, bool) for each in listed
        )
        expected = list(map(str, listed))
        if not usable or not expected or not all(text.strip() for text in expected):
            return EvaluateResult(is_score_valid=False, reason="no ground truth that is text")
        return judge(sample.response, expected)

    # In a list of scorers, a metric is named after its function.
    score.__name__ = score.__qualname__ = name
    return score


def _score_contains(response: str, expected: list[str]) -> EvaluateResult:
    normalized = " ".join(remove_thoughts(response).casefold().split())
    for text in expected:
        if _compile_reference(" ".join(text.casefold().split())).search(normalized):
            return EvaluateResult(score=1.0, reason=f"the response contains {text[:100]!r}")
    return EvaluateResult(score=0.0, reason=f"the response lacks {expected[0][:100]!r}")


def _compile_reference(text: str) -> re.Pattern[str]:
    # A number inside another one is another number: "42" is not in "142", "1,424", "42.5" or "-42".
    before = r"(?<![0-9])(?<![0-9][.,])(?<!(?<!\w)[-\u2212])" if text[0].isdecimal() else ""
    after = r"(?![.,]?[0-9])" if text[-1].isdecimal() else ""
    return re.compile(f"{before}{re.escape(text)}{after}")


def _score_json(response: str, expected: list[str]) -> EvaluateResult:
    try:
        # Python reads NaN and Infinity, which are not JSON.
        json.loads(response, parse_constant=refuse_json_constant)
    except (ValueError, RecursionError) as error:
        return EvaluateResult(score=0.0, reason=f"the response is not JSON: {error}")
    return EvaluateResult(score=1.0, reason="the response is JSON")


def _score_conciseness(response: str, expected: list[str]) -> EvaluateResult:
    words = len(response.split())
    longest = max(len(text.split()) for text in expected)
    if not words:
        return EvaluateResult(score=0.0, reason="the response is empty")
    score = min(1.0, longest / words)
    return EvaluateResult(score=score, reason=f"{words} words, the expected answer has {longest}")


def _score_empty(response: str, expected: list[str]) -> EvaluateResult:
    if response.strip():
        return EvaluateResult(score=0.0, reason="the response is not empty")
    return EvaluateResult(score=1.0, reason="the response is empty")


def check_passed(sample: Sample) -> EvaluateResult:
    """Return the result of the run's `check` command; a sample without one is unscored."""
    own = None if sample.trajectory is None else sample.trajectory.evaluation_result
    none = EvaluateResult(is_score_valid=False, reason="no check was run in the workspace")
    return none if own is None else own


METRICS = {
    metric.name: metric
    for metric in (
        RegisteredMetric(
            "exact_answer",
            exact_answer(),
            "the final answer is the ground truth",
        ),
        RegisteredMetric(
            "numeric_answer",
            exact_answer(extract=extract_number),
            "the number that the response gives as its answer is the ground truth",
        ),
        RegisteredMetric(
            "contains_answer",
            _build_response_scorer("contains_answer", _score_contains, truth=True),
            "the response contains the ground truth, with any text around it",
        ),
        RegisteredMetric(
            "json_valid",
            _build_response_scorer("json_valid", _score_json, truth=False),
            "the whole response is JSON",
        ),
        RegisteredMetric(
            "conciseness",
            _build_response_scorer("conciseness", _score_conciseness, truth=True),
            "words of the ground truth for each word of the response, at most 1",
        ),
        RegisteredMetric(
            "check_passed",
            check_passed,
            "the check command succeeded in the workspace of the agent",
        ),
        RegisteredMetric(
            "empty_rate",
            _build_response_scorer("empty_rate", _score_empty, truth=False),
            "the response is empty",
            direction="min",
        ),
    )
}
"""The metrics that a manifest can name without a module."""


def require_metric(name: str, *, where: str) -> RegisteredMetric:
    """Return the metric of that name. Raises `ConfigError` with the list of all names."""
    found = find_metric(name)
    if found is None:
        raise ConfigError(
            f"no metric is named {name!r}",
            where=where,
            hint=f"the metrics are: {', '.join(list_names('assay.scorers', METRICS))}; "
            "write your own as module:function",
        )
    return found
