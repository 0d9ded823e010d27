"""Writes docs/store-schema.md from the tables of a new store.

python docs/make_schema.py
"""

import sqlite3
import tempfile
from pathlib import Path

from assay.store import Store

PAGE = Path(__file__).with_name("store-schema.md")

HEAD = '''# Store schema

The store is an ordinary database: you can query it with SQL. This page lists its tables. Reading
is safe at any time, also while a run is recorded. Writing is left to assay, which keeps several
tables in step.

```python
import sqlite3

from assay import EvalConfig, evaluate_sync

rows = [{"question": "Lima", "answer": "Lima"}, {"question": "Sydney", "answer": "Canberra"}]
evaluate_sync(rows, EvalConfig(agent="mock:echo", score_fn="exact_answer", name="capitals"))

database = sqlite3.connect("file:.assay/assay.db?mode=ro", uri=True)
found = database.execute("""
    SELECT run.name, count(*), avg(result.score)
    FROM assay_result AS result JOIN assay_run AS run USING (run_no)
    WHERE result.valid
    GROUP BY run.run_no
""").fetchall()

assert found == [("capitals", 2, 0.5)]
```

PostgreSQL has the same tables and columns, with `BIGINT` for integers, `BYTEA` for bytes and
`TEXT COLLATE "C"` for text. `assay view` and `--json` give the same values without SQL. Scores of
several repeats are averaged by sample first in every report of assay; the query above does not do
so.

This page is generated from the schema of version {version} by `docs/make_schema.py`.

## Limits

- The tables may change with a version of assay. The fields of `--json` change less often.
- Do not write to the tables: assay would not count the rows.
'''

TABLES = {
    "assay_run": "One row for each run. `config` is JSON; `status` is `running`, `completed`, "
    "`interrupted` or `failed`; times are ISO 8601 in UTC.",
    "assay_result": "One row for each sample that ended, and for each of its repeats. `score` is "
    "null where `valid` is false. `position` is the order of the dataset, `metrics` JSON.",
    "assay_body": "The complete sample of a result, compressed: read it with "
    "`Store.open().run(RUN).samples()`.",
    "assay_excerpt": "Short texts of a result: question, answer, expected answer, reason.",
    "assay_attempt": "One row for each failed try of a sample, with the part that failed.",
    "assay_tally": "The sums of a run, kept in step with its results.",
    "assay_summary": "The summary of a run as JSON, with the numbers of rows behind it.",
    "assay_lease": "The processes that work on a run. One is dead after 30 s without heartbeat.",
    "assay_label": "Verdicts of people on samples.",
    "assay_step": "The metrics of each step of a training, as JSON.",
    "assay_session": "Stored conversations with models, without keys.",
    "assay_message": "The messages of stored conversations, compressed.",
    "assay_schema_version": "The version of the schema: one row.",
}
"""The purpose of each table, in the order of the page."""


def build_page() -> str:
    """Build the page from a store that is made for it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new.db"
        Store.open(str(path)).close()
        database = sqlite3.connect(path)
        try:
            return _build(database)
        finally:
            database.close()


def _build(database: sqlite3.Connection) -> str:
    names = [
        str(name)
        for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        )
    ]
    if unknown := set(names) ^ set(TABLES):
        raise SystemExit(f"describe these tables in {__file__}: {', '.join(sorted(unknown))}")
    (version,) = database.execute("SELECT version FROM assay_schema_version").fetchone()
    tables = [_describe_table(database, name) for name in TABLES]
    return HEAD.replace("{version}", str(version)) + "".join(tables)


def _describe_table(database: sqlite3.Connection, name: str) -> str:
    rows = "".join(
        f"| `{column}` | {kind} | {'no' if filled or key else 'yes'} | {default or ''} |\n"
        for _, column, kind, filled, default, key in database.execute(
            f"PRAGMA table_info({name})"
        ).fetchall()
    )
    indexes = [
        _describe_index(database, *row)
        for row in database.execute(f"PRAGMA index_list({name})").fetchall()
        if not row[1].startswith("sqlite_")
    ]
    below = f"\nIndexes: {'; '.join(sorted(indexes))}.\n" if indexes else ""
    head = "| column | type | null | default |\n|---|---|---|---|\n"
    return f"\n## {name}\n\n{TABLES[name]}\n\n{head}{rows}{below}"


def _describe_index(
    database: sqlite3.Connection, _: int, name: str, unique: int, origin: str, partial: int
) -> str:
    columns = ", ".join(row[2] for row in database.execute(f"PRAGMA index_info({name})"))
    return f"{'unique ' if unique else ''}`{columns}`{' for some rows' if partial else ''}"


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
