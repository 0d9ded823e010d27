"""The tables as SQLAlchemy Core objects, for reading and small writes.

The migrations create them; a test compares the two. Names are prefixed, because a team's
PostgreSQL database may contain other tables.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy import Table


@dataclass(frozen=True)
class Tables:
    """Every table of a store."""

    schema_version: "Table"
    run: "Table"
    tally: "Table"
    """Running totals of a run, updated in the transaction that inserts its results."""

    lease: "Table"
    """The process that uses a run."""

    result: "Table"
    """Narrow: the columns to filter, sort and average by."""

    body: "Table"
    """Wide: the whole sample of a result."""

    attempt: "Table"
    """Failed attempts, one each, with their samples."""

    step: "Table"
    """Metrics of training steps, one row each."""

    session: "Table"
    message: "Table"


_TABLE_COLUMNS = {
    "schema_version": "version:int",
    "run": """
        run_no:int id:text name:text config:text config_fingerprint:text dataset:text
        dataset_fingerprint:text dataset_changed:bool total:int repeats:int status:text
        created_at:text finished_at:text key_fingerprint:text reuses:text
    """,
    "tally": """
        run_no:int recorded:int valid:int score_sum:float score_square_sum:float
        cost_usd:float cost_known:int input_tokens:int output_tokens:int tokens_known:int
        attempts:int last_result_no:int
    """,
    "lease": "run_no:int token:text pid:int host:text since:text heartbeat_at:float",
    "result": """
        result_no:int run_no:int key:text position:int sample_id:text repeat:int
        group_index:int status:text score:float valid:bool input_tokens:int output_tokens:int
        cost_usd:float latency_s:float cached:bool metrics:text recorded_at:float
        prompt_digest:text
    """,
    "body": "result_no:int codec:text blob:bytes",
    "attempt": """
        attempt_no:int run_no:int key:text position:int sample_id:text repeat:int
        group_index:int status:text boundary:text kind:text message:text retryable:bool
        input_tokens:int output_tokens:int cost_usd:float latency_s:float cached:bool
        recorded_at:float codec:text blob:bytes prompt_digest:text
    """,
    "step": "run_no:int step:int metrics:text recorded_at:float",
    "session": """
        id:text parent_id:text branch_point:int status:text provider:text model:text
        messages:int created_at:text updated_at:text blob:bytes
    """,
    "message": "session_id:text position:int blob:bytes",
}


@cache
def get_tables() -> Tables:
    """Build the tables when a store is first opened, and return the same ones from then on."""
    types = {
        "int": sa.BigInteger,
        "float": sa.Double,
        "bool": sa.Boolean,
        "text": sa.Text,
        "bytes": sa.LargeBinary,
    }
    metadata = sa.MetaData()

    def table(name: str) -> sa.Table:
        named = (column.split(":") for column in _TABLE_COLUMNS[name].split())
        return sa.Table(
            f"assay_{name}", metadata, *(sa.Column(column, types[kind]()) for column, kind in named)
        )

    return Tables(**{name: table(name) for name in _TABLE_COLUMNS})
