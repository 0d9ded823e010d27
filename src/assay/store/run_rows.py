"""Run specifications, entries in the list of runs, and the checks before a resume."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic_core import PydanticSerializationError, to_json

from assay.errors import ConfigError

from .database import Transaction
from .excerpts import to_column_text
from .lease import Holder

RunStatus = Literal["running", "completed", "interrupted", "failed"]
LATEST = "latest"
_MAX_RUN_ID_LENGTH = 200
_MAX_LISTED_RUNS = 5


def now() -> str:
    """Return the current time in UTC as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class RunSpec:
    """The description of a run: enough to resume it, without secrets."""

    id: str
    name: str
    config: dict[str, Any]
    """Plain JSON values. Stored as they are given: must not contain keys or passwords."""

    config_fingerprint: str
    dataset: str
    dataset_fingerprint: str | None = None
    total: int | None = None
    """The number of samples, if it is known before they are read."""

    repeats: int = 1
    created_at: str = field(default_factory=now)
    reuses: str | None = None
    """The run whose recorded trajectories this one scores instead of rolling out again."""

    key_fingerprint: str | None = None
    """The fingerprint in the keys of its samples. None: `config_fingerprint`."""

    def __post_init__(self) -> None:
        if not self.id or len(self.id) > _MAX_RUN_ID_LENGTH or not self.id.isprintable():
            raise ConfigError(
                f"{self.id[:50]!r} is not a valid run id",
                where="RunSpec",
                hint=f"use 1 to {_MAX_RUN_ID_LENGTH} printable characters",
            )
        if self.id == LATEST:
            raise ConfigError(
                f"{LATEST!r} is reserved for the newest run and is not a valid run id"
            )
        if self.repeats < 1:
            raise ConfigError(f"repeats must be at least 1, not {self.repeats!r}", where="RunSpec")
        if self.total is not None and self.total < 0:
            raise ConfigError(f"total must be at least 0, not {self.total!r}", where="RunSpec")
        self.config_json()

    def config_json(self) -> str:
        try:
            # Through pydantic, so that an endpoint inside is written without its secrets.
            return to_json(self.config, inf_nan_mode="strings").decode()
        except PydanticSerializationError as error:
            raise ConfigError(
                f"the configuration is not plain JSON: {error}", where="RunSpec"
            ) from None


@dataclass(frozen=True)
class Totals:
    """Totals of a run's results. Sums cover the results with known values, counted beside them."""

    recorded: int
    valid: int
    """Results with a valid score. The others are not part of the sums of scores."""

    mean: float | None
    """Mean over valid samples, the repeats of each averaged first."""

    score_sum: float
    score_square_sum: float
    cost_usd: float | None
    """None when no result has a cost."""

    cost_known: int
    input_tokens: int | None
    output_tokens: int | None
    tokens_known: int
    attempts: int
    """Failed attempts, retried ones included."""

    failed: int
    """Samples whose attempts all failed."""

    @property
    def invalid(self) -> int:
        return self.recorded - self.valid


@dataclass(frozen=True)
class RunRow:
    """One run in a list."""

    spec: RunSpec
    status: RunStatus
    """`running` only while a live process uses it; a run whose process died is `interrupted`."""

    dataset_changed: bool
    """Whether the run was resumed with a dataset of another fingerprint."""

    finished_at: str | None
    holder: Holder | None
    totals: Totals

    @property
    def id(self) -> str:
        return self.spec.id


def parse_run_spec(row: Any) -> RunSpec:
    return RunSpec(
        id=row.id,
        name=row.name,
        config=json.loads(row.config),
        config_fingerprint=row.config_fingerprint,
        dataset=row.dataset,
        dataset_fingerprint=row.dataset_fingerprint,
        total=row.total,
        repeats=row.repeats,
        created_at=row.created_at,
        reuses=row.reuses,
        key_fingerprint=row.key_fingerprint,
    )


def parse_run_row(row: Any, holder: Holder | None) -> RunRow:
    """Parse one row of `RUN_QUERY`."""
    status: RunStatus = row.status
    if status == "running" and holder is None:
        status = "interrupted"
    mean: float | None = None
    if row.valid:
        mean = row.score_sum / row.valid if row.repeats == 1 else row.mean_of_samples
    return RunRow(
        spec=parse_run_spec(row),
        status=status,
        dataset_changed=bool(row.dataset_changed),
        finished_at=row.finished_at,
        holder=holder,
        totals=Totals(
            recorded=row.recorded,
            valid=row.valid,
            mean=mean,
            score_sum=row.score_sum,
            score_square_sum=row.score_square_sum,
            cost_usd=row.cost_usd if row.cost_known else None,
            cost_known=row.cost_known,
            input_tokens=row.input_tokens if row.tokens_known else None,
            output_tokens=row.output_tokens if row.tokens_known else None,
            tokens_known=row.tokens_known,
            attempts=row.attempts,
            failed=row.failed,
        ),
    )


def build_deleted_error(run_id: str, where: str) -> ConfigError:
    """Return the error of a run that was deleted after it was opened."""
    return ConfigError(
        f"run {run_id!r} was deleted", where=where, hint="`assay runs` lists the others"
    )


RUN_QUERY = """
SELECT r.*, t.recorded, t.valid, t.score_sum, t.score_square_sum, t.cost_usd, t.cost_known,
    t.input_tokens, t.output_tokens, t.tokens_known, t.attempts,
    (
        SELECT count(DISTINCT a.key) FROM assay_attempt a
        WHERE a.run_no = r.run_no AND NOT EXISTS (
            SELECT 1 FROM assay_result d WHERE d.run_no = a.run_no AND d.key = a.key
        )
    ) AS failed,
    -- Only for runs with repeats. Without them the tally has the mean, and no result is read. By
    -- position first, as in the index: grouping by the id alone takes seven times as long.
    CASE WHEN r.repeats > 1 THEN (
        SELECT avg(m.mean) FROM (
            SELECT avg(s.score) AS mean FROM assay_result s WHERE s.run_no = r.run_no AND s.valid
            GROUP BY s.position, s.sample_id
        ) m
    ) END AS mean_of_samples
FROM assay_run r JOIN assay_tally t ON t.run_no = r.run_no
"""
"""The runs with their totals; a condition on `r` and an order follow."""


def find_run_row(transaction: Transaction, wanted: str, *, where: str, lock: bool = False) -> Any:
    """Find a run by id, unique prefix, or `latest`, and return its row.

    `lock` serializes two processes that resume one run.
    """
    if not wanted:
        # The empty prefix matches every id: an unset shell variable would select some run.
        raise ConfigError("the run id is empty", where=where)
    wanted = to_column_text(wanted)

    def select(condition: str, *values: object, most: int = _MAX_LISTED_RUNS + 1) -> list[Any]:
        query = f"SELECT run_no, id FROM assay_run {condition} ORDER BY run_no DESC LIMIT {most}"
        return transaction.execute(query, *values).all()

    if wanted == LATEST:
        found = select("", most=1)
    else:
        found = select("WHERE id = ?", wanted) or select(
            "WHERE substr(id, 1, ?) = ?", len(wanted), wanted
        )
    if len(found) == 1:
        query = "SELECT * FROM assay_run WHERE run_no = ?"
        query += transaction.lock_clause if lock else ""
        return transaction.execute(query, found[0].run_no).first()
    listed = ", ".join(repr(row.id) for row in found[:_MAX_LISTED_RUNS])
    if found:
        more = ", …" if len(found) > _MAX_LISTED_RUNS else ""
        raise ConfigError(
            f"{wanted!r} is the prefix of several run ids: {listed}{more}",
            where=where,
            hint="write more characters of the id",
        )
    known = ", ".join(repr(row.id) for row in select("", most=_MAX_LISTED_RUNS))
    raise ConfigError(
        f"run {wanted!r} does not exist" if wanted != LATEST else "the store contains no runs",
        where=where,
        hint=f"the newest runs are {known}" if known else "`assay eval` starts one",
    )


SCORER_SETTINGS = frozenset({"score_fn", "bounds"})
"""The settings of an evaluation that affect only the scoring of trajectories."""

PROVENANCE = frozenset({"code", "bundle", "commit"})
"""Entries of a run's configuration that describe its origin. Not settings, and not part of its
fingerprint."""


# The constants and functions that an agent function uses. Older runs were recorded without.
_AGENT_GLOBALS = "agent_globals"


def check_same_config(
    stored: RunSpec, given: RunSpec, *, ignore: frozenset[str] = frozenset()
) -> None:
    """Raise `ConfigError` when two configurations differ in more than the settings to `ignore`."""
    if given.config_fingerprint == stored.config_fingerprint:
        return
    stored_config = _omit_settings(stored.config, PROVENANCE)
    given_config = _omit_settings(json.loads(given.config_json()), PROVENANCE)
    if _AGENT_GLOBALS in given_config and _AGENT_GLOBALS not in stored_config:
        del given_config[_AGENT_GLOBALS]
        if given_config == stored_config:
            return
    differing = list(describe_differences(stored_config, given_config))
    if (
        ignore
        and differing
        and _omit_settings(stored_config, ignore) == _omit_settings(given_config, ignore)
    ):
        return
    listed = "\n".join(f"    {line}" for line in differing[:20]) or "    (only the fingerprint)"
    rolled_out = any(
        stored.config.get(name) is not None for name in ("agent", "endpoint", "rollout_fn")
    )
    rescore = (
        rolled_out
        and stored_config != given_config
        and _omit_settings(stored_config, SCORER_SETTINGS)
        == _omit_settings(given_config, SCORER_SETTINGS)
    )
    raise ConfigError(
        f"the configuration differs from the one that the run was started with:\n{listed}",
        where=f"run {stored.id!r}",
        hint=f"score the recorded rollouts without model calls: `assay score {stored.id} --scorer "
        "FILE.py:function`; to execute missing rollouts as well, add --rescore "
        "(Resume(rescore=True)); both start a new run"
        if rescore
        else "start a new run, or restore the configuration",
    )


def _omit_settings(config: dict[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in names}


def check_resume_spec(
    stored: RunSpec,
    given: RunSpec,
    *,
    allow_changed_dataset: bool,
    allow_changed_scorer: bool = False,
) -> bool:
    """Raise `ConfigError` if a run cannot be resumed as `given`. Return if the dataset changed."""
    where = f"run {stored.id!r}"
    ignore = SCORER_SETTINGS if allow_changed_scorer else frozenset[str]()
    check_same_config(stored, given, ignore=ignore)
    if given.repeats != stored.repeats:
        raise ConfigError(
            f"the run was started with repeats={stored.repeats}, not {given.repeats}",
            where=where,
            hint="start a new run, or restore the number of repeats",
        )
    changed = given.dataset_fingerprint != stored.dataset_fingerprint
    if changed and not allow_changed_dataset:
        raise ConfigError(
            f"the dataset changed since the run was started: {stored.dataset!r} had the "
            f"fingerprint {stored.dataset_fingerprint}, {given.dataset!r} has "
            f"{given.dataset_fingerprint}",
            where=where,
            hint="start a new run; or resume with allow_changed_dataset=True "
            "(--allow-changed-dataset), which matches samples by id, never by position",
        )
    return changed


def describe_differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield lines such as `endpoint.model: 'a' -> 'b'`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else key
            if key not in old:
                yield f"{inner}: missing -> {_shorten_repr(new[key])}"
            elif key not in new:
                yield f"{inner}: {_shorten_repr(old[key])} -> missing"
            else:
                yield from describe_differences(old[key], new[key], inner)
    elif old != new:
        yield f"{path or 'config'}: {_shorten_repr(old)} -> {_shorten_repr(new)}"


def _shorten_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
