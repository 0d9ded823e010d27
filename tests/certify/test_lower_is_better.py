"""Names whose low values are good are told from all others."""

import pytest

from assay.certify.lower_is_better import is_lower_better


@pytest.mark.parametrize(
    "name",
    """
    hallucination hallucination_rate hallucinations toxicity toxicity_score toxic harm harmfulness
    unsafe unsafe_rate unsafe-content leakage pii_leakage data_leak leak_score bias bias_score
    biased wer cer WER word_error_rate error_rate errors errorRate latency p95_latency cost
    cost_usd refusal refusal_rate refusals over_refusal failure_rate crash_rate violation_rate
    jailbreak_success attack_success_rate prompt_injection_rate profanity offensiveness hate_speech
    perplexity edit_distance loss mae rmse false_positive_rate false_positives fpr missed_steps
    response_time duration timeout_rate retries invalid_rate wrong_answers incorrect incorrectness
    misinformation contradiction privacy_violations fabricated_citations unsupported_claims
    in_domain_error_rate on_topic_hallucinations toxicity_detected errors_reported nsfw sycophancy
    harassment threats obscenity dishonesty untruthfulness irrelevance inconsistency incoherence
    confabulation disinformation mistakes defect_rate mer eer asr redundancy flakiness
    danger rudeness aggression manipulation swearing lies nll cross_entropy escalation_rate
    fallback_rate abstention tokens tokens_used ttft hostility dropped_turns off_topic
    """.split(),
)
def test_rates_and_scores_of_harm_are_better_when_lower(name: str) -> None:
    assert is_lower_better(name)


@pytest.mark.parametrize(
    "name",
    """
    factuality answer_relevance error_handling success_rate accuracy correctness helpfulness
    harmlessness harmless safety unbiased no_hallucinations hallucination_free error_recovery
    toxicity_avoidance bias_detection cost_efficiency politeness exact_answer groundedness
    faithfulness lossless mission costume leaking_prevention zero_errors on_time conciseness
    attention_to_detail relevance f1 rouge_l bleu pass_at_1 timeliness failure_handling
    in_time on_time_rate fault_tolerance threat_detection bug_fixing noise_robustness
    on_topic topic_coverage token_efficiency cursor_position recursive_depth
    """.split(),
)
def test_other_names_are_better_when_higher(name: str) -> None:
    assert not is_lower_better(name)
