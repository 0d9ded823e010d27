"""Resolution of the criteria of a rubric into graders, before anything is run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from assay.errors import ConfigError
from assay.scorers import (
    ScoreFunction,
    checks_from,
    find_metric,
    import_function,
    is_code_name,
    require_metric,
)
from assay.stats import Bounds, Direction, rows_for_percentile, rows_to_prove
from assay.types import (
    EvaluateResult,
    EvaluationProfile,
    Sample,
    SuccessCriterion,
    compute_code_sha256,
)

from .code_index import CHECK_PREFIX, CodeIndex
from .code_scan import CodeFiles
from .criteria import GradedBy, ResolvedCriterion
from .criterion_decisions import PERCENTILES
from .judge_client import JudgeModel, build_criterion_rubric, digest_judge_prompt
from .lower_is_better import is_lower_better

JUDGE_METRIC = "judge"


@dataclass(frozen=True)
class Grader:
    """One criterion, and the function that scores a sample for it."""

    criterion: ResolvedCriterion
    score: ScoreFunction

    @property
    def asks_model(self) -> bool:
        return self.criterion.graded_by.by == "judge"


@dataclass(frozen=True)
class CriteriaContext:
    """The inputs for resolving criteria."""

    root: Path
    """The manifest's folder, in which metrics and check files are looked up."""

    where: str
    """The agent, as error messages name it."""

    judge: Callable[[], JudgeModel | None]
    """Returns the judge; called only if a criterion needs it."""

    code: CodeIndex | None = None
    """The digests of the code, if they were computed before."""

    load: bool = True
    """Whether to import code. False: criteria can be compared, but not scored."""

    @property
    def index(self) -> CodeIndex:
        return self.code or CodeIndex(self.root)


def resolve_criteria(profile: EvaluationProfile, context: CriteriaContext) -> tuple[Grader, ...]:
    """Build a grader for each criterion. Raises one `ConfigError` with all mistakes."""
    _check_criterion_names(profile, context.where)
    graders, mistakes = [], []
    unjudged: list[str] = []
    for criterion in profile.grading_rubric:
        try:
            grader = _resolve_grader(_UnresolvedCriterion(criterion, profile, context))
        except ConfigError as error:
            mistakes.append(error)
        else:
            if grader is None:
                unjudged.append(criterion.name)
            else:
                graders.append(grader)
    if unjudged:
        missing = ConfigError(
            f"no metric is named {', '.join(unjudged)}, and `evaluator_model` is missing",
            where=context.where,
            hint="set `evaluator_model`, or a `metric` for each criterion",
        )
        mistakes.append(missing)
    if mistakes:
        raise ConfigError("\n".join(map(str, mistakes))) if mistakes[1:] else mistakes[0]
    return tuple(graders)


def resolve_latency_criterion(
    profile: EvaluationProfile, *, where: str
) -> ResolvedCriterion | None:
    """Return the latency limit as a criterion; None without a limit."""
    if profile.expected_latency_ms is None:
        return None
    statistic = profile.latency_statistic
    if profile.gate == "proven" and statistic not in PERCENTILES:
        raise ConfigError(
            f"no number of samples can prove a limit on the {statistic} of response times",
            where=f"{where}: latency_statistic",
            hint=f"limit a percentile ({', '.join(PERCENTILES)}), or set `gate: point`",
        )
    return ResolvedCriterion(
        name=build_latency_name(profile),
        description=f"The {statistic} of the agent's response times, in milliseconds.",
        kind="latency",
        graded_by=GradedBy(by="clock", name=statistic),
        direction="min",
        threshold=profile.expected_latency_ms,
        strict=True,
        range=None,
        gate=profile.gate,
        confidence=_check_confidence(profile, where),
    )


def build_latency_name(profile: EvaluationProfile) -> str:
    return f"latency_{profile.latency_statistic}_ms"


def compute_samples_needed(criterion: ResolvedCriterion) -> int | None:
    """Return how many perfect samples prove a criterion; None if no number of them can."""
    if criterion.range is not None:
        return rows_to_prove(
            criterion.threshold,
            direction=criterion.direction,
            bounds=criterion.range,
            confidence=criterion.confidence,
        )
    percent = PERCENTILES.get(criterion.graded_by.name)
    if percent is None:
        return None
    return rows_for_percentile(percent, confidence=criterion.confidence)


@dataclass(frozen=True)
class _UnresolvedCriterion:
    """One criterion of a manifest, and the inputs for resolving it."""

    criterion: SuccessCriterion
    profile: EvaluationProfile
    context: CriteriaContext

    @property
    def where(self) -> str:
        return f"{self.context.where}: {self.criterion.name}"


def _resolve_grader(case: _UnresolvedCriterion) -> Grader | None:
    """Return the grader of one criterion; None when it needs a judge and none is set."""
    named = case.criterion.metric
    if named is None:
        named = JUDGE_METRIC if find_metric(case.criterion.name) is None else case.criterion.name
    if named == JUDGE_METRIC:
        return _build_judge_grader(case)
    if named.startswith(CHECK_PREFIX):
        graded_by, score = _load_check_scorer(named.removeprefix(CHECK_PREFIX), case)
    elif ":" in named:
        graded_by, score = _load_user_metric(named, case)
    else:
        return _build_metric_grader(case, named)
    return Grader(
        _resolve_criterion(case, graded_by, direction=_resolve_direction(case, None)), score
    )


def _build_metric_grader(case: _UnresolvedCriterion, name: str) -> Grader:
    metric = require_metric(name, where=case.where)
    graded_by = GradedBy(by="metric", name=name, sha256=compute_code_sha256(metric.scorer))
    direction = _resolve_direction(case, metric.direction)
    return Grader(
        _resolve_criterion(case, graded_by, direction=direction, bounds=metric.range), metric.scorer
    )


def _build_judge_grader(case: _UnresolvedCriterion) -> Grader | None:
    direction = _resolve_direction(case, None)
    if case.criterion.range not in (None, (0.0, 1.0)):
        raise ConfigError("`range` must be [0, 1] for a judge", where=f"{case.where}: range")
    judge = case.context.judge()
    digest = digest_judge_prompt(build_criterion_rubric(case.criterion, direction))
    name = "" if judge is None else judge.name
    resolved = _resolve_criterion(
        case, GradedBy(by="judge", name=name, sha256=digest), direction=direction
    )
    return None if judge is None else Grader(resolved, judge.scorer(case.criterion, direction))


def _load_user_metric(name: str, case: _UnresolvedCriterion) -> tuple[GradedBy, ScoreFunction]:
    where = f"{case.where}: metric"
    if not is_code_name(name):
        raise ConfigError(
            f"{name!r} is neither the name of a metric nor module:function",
            where=where,
            hint="write a check as check:FILE.yaml or check:FILE.yaml#NAME",
        )
    # Digested before the import, which could change the files.
    graded_by = _build_code_grading("metric", name, case.context.index.find("metric", name))
    if not case.context.load:
        return graded_by, _refuse_unloaded_scorer
    return graded_by, import_function(name, folders=(case.context.root,), where=where)


def _load_check_scorer(text: str, case: _UnresolvedCriterion) -> tuple[GradedBy, ScoreFunction]:
    """Load `FILE` for the score of all checks of a file, `FILE#NAME` for one of them."""
    where, root = f"{case.where}: metric", case.context.root
    file, _, name = text.partition("#")
    path = (root / file).resolve()
    if not path.is_relative_to(root.resolve()):
        raise ConfigError(
            f"the check file {file!r} is outside of the manifest's folder", where=where
        )
    if not path.is_file():
        raise ConfigError(
            f"the check file {file!r} does not exist in the manifest's folder", where=where
        )
    graded_by = _build_code_grading("check", text, case.context.index.find("check", text))
    if not case.context.load:
        return graded_by, _refuse_unloaded_scorer
    checks = checks_from(path)
    if not name:
        return graded_by, checks
    names = [check.name for check in checks.checks]
    if name not in names:
        raise ConfigError(
            f"{file!r} has no check {name!r}", where=where, hint=f"its checks: {', '.join(names)}"
        )

    def score(sample: Sample) -> EvaluateResult:
        metric = checks(sample).metrics[name]
        if metric.score is None:
            return EvaluateResult(is_score_valid=False, reason=metric.reason)
        return EvaluateResult(score=metric.score, reason=metric.reason)

    return graded_by, score


def _build_code_grading(
    by: Literal["metric", "check"], name: str, code: CodeFiles | None
) -> GradedBy:
    if code is None:
        return GradedBy(by=by, name=name)
    return GradedBy(by=by, name=name, sha256=code.sha256, files=dict(code.files))


def _refuse_unloaded_scorer(sample: Sample) -> EvaluateResult:
    raise ConfigError("the code of this criterion was not imported")


def _resolve_criterion(
    case: _UnresolvedCriterion,
    graded_by: GradedBy,
    *,
    direction: Direction,
    bounds: Bounds = (0.0, 1.0),
) -> ResolvedCriterion:
    criterion = case.criterion
    bounds = criterion.range or bounds
    resolved = ResolvedCriterion(
        name=criterion.name,
        description=criterion.description,
        kind="score",
        graded_by=graded_by,
        direction=direction,
        threshold=criterion.threshold,
        strict=criterion.strict,
        range=bounds,
        gate=case.profile.gate,
        confidence=_check_confidence(case.profile, case.where),
    )
    _check_threshold(resolved, bounds, case.where)
    return resolved


def _check_threshold(criterion: ResolvedCriterion, bounds: Bounds, where: str) -> None:
    (low, high), threshold = bounds, criterion.threshold
    where = f"{where}: threshold"
    if not low <= threshold <= high:
        share = threshold / 100
        hint = f"did you mean {share:g}?" if bounds == (0.0, 1.0) and 0 < share <= 1 else None
        raise ConfigError(
            f"the threshold {threshold:g} is outside of the metric's range, {low:g} to {high:g}",
            where=where,
            hint=hint or "set the metric's `range: [lowest, highest]`",
        )
    if criterion.strict and threshold == criterion.worst:
        raise ConfigError(
            f"every agent reaches the threshold {threshold:g}, the worst possible value",
            where=where,
            hint="raise the threshold, set `direction: min` or `max`, or `strict: false` to only "
            "report the value",
        )
    if (
        criterion.gate == "proven"
        and criterion.strict
        and compute_samples_needed(criterion) is None
    ):
        raise ConfigError(
            f"no number of samples can prove {threshold:g}, the best possible value",
            where=where,
            hint="lower the threshold, or set `gate: point`",
        )


def _resolve_direction(case: _UnresolvedCriterion, own: Direction | None) -> Direction:
    """Return the manifest's direction, else the metric's, else `max` unless the name is unclear."""
    found = case.criterion.direction or own
    metric = case.criterion.metric or ""
    # The file name of a check does not describe the measure.
    names = (
        case.criterion.name,
        "" if metric.startswith(CHECK_PREFIX) else metric.rpartition(":")[2],
    )
    if found is None and any(map(is_lower_better, names)):
        raise ConfigError(
            "the name does not show whether high or low values are good",
            where=case.where,
            hint="set `direction: min` or `direction: max`",
        )
    return found or "max"


def _check_confidence(profile: EvaluationProfile, where: str) -> float:
    if not profile.confidence > 0.5:
        raise ConfigError(
            f"a confidence of {profile.confidence:g} is not above 0.5",
            where=f"{where}: confidence",
            hint="0.95 is common",
        )
    return profile.confidence


def _check_criterion_names(profile: EvaluationProfile, where: str) -> None:
    names = [criterion.name for criterion in profile.grading_rubric]
    if profile.expected_latency_ms is not None:
        names.append(build_latency_name(profile))
    for name in names:
        if name.startswith("::"):
            # At the start of a line, GitHub Actions takes `::` for a workflow command.
            raise ConfigError(
                f"the criterion name {name!r} begins with two colons",
                where=f"{where}: grading_rubric",
                hint="begin the name with a letter",
            )
        if names.count(name) > 1:
            raise ConfigError(
                f"two criteria are named {name!r}",
                where=f"{where}: grading_rubric",
                hint="rename one of them: certificates identify criteria by name",
            )
