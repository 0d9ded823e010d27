"""Results: the quotes of judges and the findings of checks, at the messages they are about."""

from assay.types import EvaluateResult, Metric, Sample, StepOutput
from assay.web.conversations import list_conversations
from assay.web.sample_score import ScoreView, collect_quotes, read_score
from make import asked, said, sample
from recorded_samples import checked, judged, nested, steps


def read(given: Sample) -> ScoreView:
    score = read_score(given, list_conversations(given)[0])
    assert score is not None
    return score


def test_quotes_of_judges_lead_to_their_message() -> None:
    score = read(judged(0))

    quotes = score.metrics[0].quotes
    assert [[place.number for place in quote.places] for quote in quotes] == [[5], [4], []]
    assert collect_quotes(score, "main")[4] == [("quote-2", "Returns within 30 days")]
    assert (score.judges, score.votes) == (("judge-a", "judge-b"), 3)
    assert [each.title for each in score.metrics[0].opinions] == ["judge-a", "judge-b", "judge-c"]


def test_messages_of_subagents_are_numbered_after_the_others() -> None:
    place = read(nested(0)).metrics[0].quotes[0].places[0]

    assert (place.conversation, place.number) == ("agent-0-0", 2)


def test_findings_of_checks_lead_to_the_quoted_words() -> None:
    failed, passed = read(checked(0)).metrics

    assert (failed.passed, failed.quotes[0].text) == (False, "Permission denied")
    assert failed.quotes[0].places[0].number == 4
    assert (passed.passed, passed.places[0].number) == (True, 3)


def test_a_turn_of_a_subagent_is_found_by_its_id() -> None:
    given = nested(0)
    reason = "a call failed in turn 2 of subagent 'agent-b': '12 files'"
    given.score = EvaluateResult(metrics={"check": Metric(score=0.0, reason=reason)})

    place = read(given).metrics[0].quotes[0].places[0]

    assert (place.conversation, place.number) == ("agent-0-0", 2)


def test_damaged_evidence_is_left_out() -> None:
    evidence = [7, {"quote": 1}, {"quote": "b", "turns": "x"}, {"quote": "b", "turns": [99, "1"]}]
    metric = Metric(score=1.0, evidence=evidence, opinions=[3, {"score": "x"}], agreement="x")
    given = sample(asked("a"), said("b"), score=EvaluateResult(metrics={"m": metric}))

    shown = read(given).metrics[0]

    assert [quote.places for quote in shown.quotes] == [(), ()]
    assert shown.agreement is None


def test_the_total_of_steps_is_unknown_with_an_unknown_reward() -> None:
    shown = read(steps(0)).steps

    assert shown is not None
    assert (shown.total, shown.reward) == (7, None)
    assert shown.rewards[4] is None


def test_many_steps_and_metrics_are_counted() -> None:
    outputs = [StepOutput(step_index=n, base_reward=1.0) for n in range(1000)]
    metrics = {f"m{n}": Metric(score=1.0) for n in range(300)}
    result = EvaluateResult(score=1.0, step_outputs=outputs, metrics=metrics)

    shown = read(sample(asked("a"), score=result))

    assert (len(shown.metrics), shown.more_metrics) == (200, 100)
    assert shown.steps is not None
    assert (len(shown.steps.steps), shown.steps.total) == (200, 1000)


def test_a_sample_without_result_has_none() -> None:
    assert read_score(sample(asked("a")), []) is None
