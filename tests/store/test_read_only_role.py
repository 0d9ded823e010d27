"""The role of docs/store.md that only reads: commands and pages work, and nothing is written."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import psycopg
import pytest

from assay.errors import StoreError
from assay.store import SampleLabel, Store
from assay.web import ViewServer
from commands import call_main
from store_runs import key_of, record, scored, spec

PAGE = Path(__file__).parents[2] / "docs" / "store.md"


@pytest.fixture
def reader_url(postgresql_server: str) -> Iterator[str]:
    """The URL of a recorded store for a role that was made as the page says."""
    found = re.search(r"```sql\n(CREATE ROLE.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found is not None
    # Roles belong to all databases of the server, which other tests share.
    suffix = os.urandom(4).hex()
    role, database = f"assay_reader_{suffix}", f"evals_{suffix}"
    statements = (
        found[1].replace("assay_reader", role).replace("DATABASE evals", f"DATABASE {database}")
    )
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {database}")
    owner = postgresql_server.replace("/postgres?", f"/{database}?")
    with psycopg.connect(owner, autocommit=True) as connection, Store.open(owner) as store:
        for run_id in ("run-1", "run-2"):
            run = store.start_run(spec(run_id, total=2))
            record(run, [scored(0), scored(1, score=0.5)])
            run.finish("completed")
        connection.execute(statements)
        yield owner.replace("postgres:@", f"{role}:...@")
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {database} WITH (FORCE)")


@pytest.mark.parametrize(
    "words",
    [
        ["runs"],
        ["runs", "wait", "run-1"],
        ["show", "run-1"],
        ["compare", "run-1", "run-2"],
        ["gate", "run-1", "--threshold", "0.5"],
        ["export", "sample", "run-1", "-o", "out.jsonl"],
        ["runs", "copy", "run-1", "--to", "copy.db"],
        ["sessions"],
    ],
)
def test_commands_that_read_work(words: list[str], reader_url: str, tmp_path: Path) -> None:
    done = call_main(tmp_path, *words, "--store", reader_url)

    assert done.returncode == 0, done.stderr
    assert "permission" not in done.stderr


def test_pages_are_shown_and_nothing_is_written(reader_url: str, tmp_path: Path) -> None:
    with Store.open(reader_url, create=False) as store:
        sample = f"run/run-1/sample/{key_of(scored(0))}"
        paths = ["", "run/run-1", "run/run-1?sort=score", sample, "compare?run=run-1&run=run-2"]
        with ViewServer(store) as viewer:
            for path in [*paths, "history", "failures?run=run-1", "sessions", "run/run-1/labels"]:
                with urlopen(viewer.url + path) as page:
                    assert page.status == 200

        label = SampleLabel(key=key_of(scored(0)), verdict="pass", author="ann")
        with pytest.raises(StoreError, match="permission denied for table assay_label"):
            store.run("run-1").write_label(label)
        with pytest.raises(StoreError, match="the user lacks a permission"):
            store.start_run(spec("run-3"))
    refused = call_main(tmp_path, "runs", "delete", "run-1", "--store", reader_url)
    assert refused.returncode == 3
    assert "permission denied" in refused.stderr
