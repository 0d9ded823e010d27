"""Statistics, summaries, comparison, gates and certificates: pure functions, no I/O.

What only certification needs is loaded when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .comparison import Comparison, Conclusion, Listed, Pair, compare
from .figures import Distribution, Latency, ScoreStatistics, Total
from .gate import Check, GateRule, Outcome, Verdict, judge_gate
from .paired import SignFlipTest, difference_interval, sign_flip_test
from .percentiles import RunningPercentiles, percentile
from .power import detectable_difference
from .repeats import PassRate, pass_at_k, pass_hat_k
from .results import ResultLike, SampleMean, per_sample_means
from .statistics import Interval, RunningStats, mean_interval, samples_to_prove
from .summary import RunSummary, summarise

if TYPE_CHECKING:
    from .agent_card import card_markdown, summary_markdown
    from .bounds import percentile_bounds, rows_for_percentile, rows_to_prove, score_bounds
    from .certificate import Certification, Resource, Statement, state
    from .certificate_checks import Expected, Finding, check_certificate
    from .certificate_reading import read_certificate
    from .certified import (
        CertificationResult,
        CertifiedAgent,
        CertifiedDataset,
        CertifiedJudge,
        CertifiedManifest,
        Cost,
        Notice,
    )
    from .criteria import (
        Bar,
        CertificationVerdict,
        CriterionOutcome,
        CriterionStatus,
        Evidence,
        GradedBy,
        LatencyFigures,
        verdict_of,
    )
    from .junit import junit_xml

__all__ = [
    "Bar",
    "Certification",
    "CertificationResult",
    "CertificationVerdict",
    "CertifiedAgent",
    "CertifiedDataset",
    "CertifiedJudge",
    "CertifiedManifest",
    "Check",
    "Comparison",
    "Conclusion",
    "Cost",
    "CriterionOutcome",
    "CriterionStatus",
    "Distribution",
    "Evidence",
    "Expected",
    "Finding",
    "GateRule",
    "GradedBy",
    "Interval",
    "Latency",
    "LatencyFigures",
    "Listed",
    "Notice",
    "Outcome",
    "Pair",
    "PassRate",
    "Resource",
    "ResultLike",
    "RunSummary",
    "RunningPercentiles",
    "RunningStats",
    "SampleMean",
    "ScoreStatistics",
    "SignFlipTest",
    "Statement",
    "Total",
    "Verdict",
    "card_markdown",
    "check_certificate",
    "compare",
    "detectable_difference",
    "difference_interval",
    "judge_gate",
    "junit_xml",
    "mean_interval",
    "pass_at_k",
    "pass_hat_k",
    "per_sample_means",
    "percentile",
    "percentile_bounds",
    "read_certificate",
    "rows_for_percentile",
    "rows_to_prove",
    "samples_to_prove",
    "score_bounds",
    "sign_flip_test",
    "state",
    "summarise",
    "summary_markdown",
    "verdict_of",
]

_OF_CERTIFICATION = {
    "agent_card": "card_markdown summary_markdown",
    "bounds": "percentile_bounds rows_for_percentile rows_to_prove score_bounds",
    "certificate": "Certification Resource Statement state",
    "certificate_checks": "Expected Finding check_certificate",
    "certificate_reading": "read_certificate",
    "certified": """
        CertificationResult CertifiedAgent CertifiedDataset CertifiedJudge CertifiedManifest Cost
        Notice
    """,
    "criteria": """
        Bar CertificationVerdict CriterionOutcome CriterionStatus Evidence GradedBy LatencyFigures
        verdict_of
    """,
    "junit": "junit_xml",
}
_HOMES = {name: home for home, names in _OF_CERTIFICATION.items() for name in names.split()}

if not TYPE_CHECKING:
    # Hidden from type checkers, which would otherwise believe that every name exists.
    def __getattr__(name: str) -> object:
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module 'assay.report' has no attribute {name!r}")
        value = getattr(import_module(f"assay.report.{home}"), name)
        globals()[name] = value
        return value
