"""Prompts of recorded rollouts, and rollouts that are kept to be rescored."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .database import Database
from .insertion import compute_first_result_no
from .result_reader import SCORER_BOUNDARY, parse_body

if TYPE_CHECKING:
    from assay.types import Trajectory

_PAGE = 10_000


@dataclass(frozen=True)
class KeptRollout:
    """A recorded rollout that can be scored again without model calls."""

    trajectory: "Trajectory"
    prompt_digest: str | None
    """None in rows of older versions of assay."""

    metadata: dict[str, Any] = field(default_factory=dict)
    """Metadata of the sample, including entries of its scorer before it failed."""


def read_prompts(
    database: Database, run_no: int, *, kept: bool
) -> Iterator[tuple[str, str | None]]:
    """Yield key and prompt digest of each result, or of each attempt whose scorer failed."""
    if kept:
        selected = (
            "SELECT attempt_no AS number, key, prompt_digest FROM assay_attempt "
            "WHERE run_no = ? AND boundary = ? AND attempt_no > ? ORDER BY attempt_no LIMIT ?"
        )
        values: tuple[object, ...] = (run_no, SCORER_BOUNDARY)
        last = 0
    else:
        # By the run's range of numbers: the rows are read in the order of the primary key.
        selected = (
            "SELECT result_no AS number, key, prompt_digest FROM assay_result "
            "WHERE run_no = ? AND result_no < ? AND result_no > ? ORDER BY result_no LIMIT ?"
        )
        values = (run_no, compute_first_result_no(run_no + 1))
        last = compute_first_result_no(run_no)
    while True:
        with database.read_transaction() as transaction:
            rows = transaction.execute(selected, *values, last, _PAGE).all()
        for _, key, digest in rows:
            yield key, digest
        if len(rows) < _PAGE:
            return
        last = rows[-1].number


def read_kept_rollout(database: Database, run_no: int, key: str) -> KeptRollout | None:
    """Return the rollout of a result, or of the last attempt whose scorer failed."""
    result = (
        "SELECT b.codec, b.blob, r.prompt_digest FROM assay_result r "
        "JOIN assay_body b ON b.result_no = r.result_no WHERE r.run_no = ? AND r.key = ?"
    )
    attempt = (
        "SELECT codec, blob, prompt_digest FROM assay_attempt "
        "WHERE run_no = ? AND key = ? AND boundary = ? ORDER BY attempt_no DESC LIMIT 1"
    )
    with database.read_transaction() as transaction:
        row = transaction.execute(result, run_no, key).first()
        if row is None:
            row = transaction.execute(attempt, run_no, key, SCORER_BOUNDARY).first()
    if row is None:
        return None
    sample = parse_body(row.codec, row.blob, where=f"{database.where}, key {key}")
    if sample.trajectory is None:
        return None
    return KeptRollout(sample.trajectory, row.prompt_digest, sample.metadata)
