"""The store of runs and sessions: a file in `.assay/`, or a team's PostgreSQL database."""

import json
import re
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from assay.errors import ConfigError, StoreError
from assay.types import (
    FILE_MODE,
    FOLDER_MODE,
    SHARED_FILE_MODE,
    SHARED_FOLDER_MODE,
    create_private,
    make_private_folder,
)

from .database import Database, StoreSettings, Transaction, open_postgresql, open_sqlite
from .database_errors import to_store_error
from .excerpts import to_column_text
from .insertion import compute_first_result_no
from .lease import claim_run, create_lease, find_live_holders, join_run
from .migrations import migrate
from .run import Run
from .run_rows import (
    RUN_QUERY,
    RunRow,
    RunSpec,
    check_resume_spec,
    find_run_row,
    parse_run_row,
    parse_run_spec,
)
from .stored_sessions import SessionStore

STORE_FOLDER = ".assay"
STORE_FILE = "assay.db"
# The tables of a run, except bodies and excerpts of its results. Referenced tables come last.
_RUN_TABLES = (
    "assay_label",
    "assay_summary",
    "assay_result",
    "assay_attempt",
    "assay_step",
    "assay_tally",
    "assay_lease",
    "assay_run",
)
_POSTGRESQL_PREFIX = re.compile(r"\s*postgres[a-z+]*:", re.IGNORECASE)


class Store(SessionStore):
    """Runs, their samples, and sessions. Usable from any thread of the process that opened it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(
        cls,
        where: str | Path | None = None,
        *,
        settings: StoreSettings | None = None,
        create: bool = True,
    ) -> Self:
        """Open a store: `.assay/assay.db` here, the file or folder `where`, or a PostgreSQL URL.

        Creates the file and its folder, or the tables, if absent. With `create=False`, raises
        `StoreError` unless `where` is a store, and modifies nothing.
        """
        settings = settings or StoreSettings()
        if isinstance(where, str) and "://" in where and not where.startswith("sqlite:///"):
            scheme = where.partition("://")[0].partition("+")[0]
            if scheme not in ("postgresql", "postgres"):
                raise ConfigError(
                    f"a store must be a file or a postgresql:// URL, not {scheme}://",
                    where="Store.open()",
                )
            database = open_postgresql(where, settings, create=create)
        else:
            database = _open_file(_resolve_store_path(where), settings, create=create)
        try:
            migrate(database)
        except BaseException:
            database.close()
            raise
        return cls(database)

    @property
    def where(self) -> str:
        """The file, or the URL without user and password."""
        return self._database.where

    @property
    def url(self) -> str | None:
        """The URL of a PostgreSQL store with its password: a secret. None for a file."""
        return self._database.url

    def close(self) -> None:
        """Close the database. Close all writers first."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start_run(self, spec: RunSpec) -> Run:
        """Start a new run. Raises `ConfigError` if its id already exists."""
        with self._database.write_transaction() as transaction:
            run_no = _insert_run(transaction, spec)
            if run_no is None:
                raise ConfigError(
                    f"run {spec.id!r} already exists",
                    where=self.where,
                    hint="resume it, or choose another id",
                )
            lease = create_lease(self._database, transaction, run_no)
        return Run(self._database, run_no, _to_stored_spec(spec), lease, is_new=True)

    def join_run(
        self,
        spec: RunSpec,
        *,
        shard: str,
        allow_changed_dataset: bool = False,
        allow_changed_total: bool = False,
    ) -> Run:
        """Join the run with the id of `spec` beside other processes, or start it if it is absent.

        `shard` names the part of it that this process executes. Raises `ConfigError` when the
        configuration, the dataset or the number of samples differs, or when a live process holds
        the whole run.
        """
        with self._database.write_transaction() as transaction:
            run_no = _insert_run(transaction, spec)
            if run_no is not None:
                lease = create_lease(self._database, transaction, run_no, shard=shard)
                return Run(self._database, run_no, _to_stored_spec(spec), lease, is_new=True)
            row = find_run_row(transaction, spec.id, where=self.where, lock=True)
            changed = check_resume_spec(
                parse_run_spec(row), spec, allow_changed_dataset=allow_changed_dataset
            )
            if (
                not allow_changed_total
                and row.total != spec.total
                and None not in (row.total, spec.total)
            ):
                raise ConfigError(
                    f"the run has {row.total} samples, but this shard would read {spec.total}",
                    where=f"run {spec.id!r}",
                    hint="pass the same --max-samples to all shards; --allow-changed-dataset "
                    "changes the number",
                )
            lease = join_run(self._database, transaction, row.run_no, row.id, shard=shard)
            _reopen(transaction, row, spec, changed=changed)
            joined = parse_run_spec(find_run_row(transaction, row.id, where=self.where))
        return Run(self._database, row.run_no, joined, lease)

    def resume_run(
        self,
        run_id: str,
        spec: RunSpec,
        *,
        allow_changed_dataset: bool = False,
        allow_changed_scorer: bool = False,
        take_over: bool = False,
    ) -> Run:
        """Resume a run: recorded results are kept.

        Raises `ConfigError` when the configuration differs, when the dataset differs without
        `allow_changed_dataset`, or when a live process uses the run and `take_over` is False.
        With `allow_changed_scorer`, a run without results adopts the scorer of `spec`.
        """
        with self._database.write_transaction() as transaction:
            row = find_run_row(transaction, run_id, where=self.where, lock=True)
            recorded = transaction.execute(
                "SELECT recorded FROM assay_tally WHERE run_no = ?", row.run_no
            ).scalar()
            changed = check_resume_spec(
                parse_run_spec(row),
                spec,
                allow_changed_dataset=allow_changed_dataset,
                allow_changed_scorer=allow_changed_scorer and not recorded,
            )
            lease = claim_run(
                self._database,
                transaction,
                row.run_no,
                row.id,
                take_over=take_over,
                left=None if row.total is None else max(row.total * row.repeats - recorded, 0),
            )
            _reopen(transaction, row, spec, changed=changed)
            resumed = parse_run_spec(find_run_row(transaction, row.id, where=self.where))
        return Run(self._database, row.run_no, resumed, lease)

    def runs(self, *, limit: int | None = None) -> list[RunRow]:
        """Return all runs, or the newest `limit`, newest first."""
        query = f"{RUN_QUERY} ORDER BY r.run_no DESC{'' if limit is None else ' LIMIT ?'}"
        with self._database.read_transaction() as transaction:
            holders = find_live_holders(transaction)
            rows = transaction.execute(query, *([] if limit is None else [limit])).all()
        return [parse_run_row(row, holders.get(row.run_no)) for row in rows]

    def read_revision(self) -> str:
        """Return a text that changes whenever a run is added, recorded to, ended or deleted."""
        query = (
            "SELECT count(*) AS runs, max(r.run_no) AS last, sum(t.recorded) AS recorded, "
            "sum(t.attempts) AS attempts, count(r.finished_at) AS finished "
            "FROM assay_run r JOIN assay_tally t ON t.run_no = r.run_no"
        )
        with self._database.read_transaction() as transaction:
            row = transaction.execute(query).first()
            live = len(find_live_holders(transaction))
        return ".".join(str(each or 0) for each in (*row, live))

    def read_summaries(self, run_ids: Sequence[str]) -> dict[str, str]:
        """Return the stored statistics of these runs, as `Run.find_summary` does of one."""
        if not run_ids:
            return {}
        marks = ", ".join("?" * len(run_ids))
        query = (
            "SELECT r.id, s.summary FROM assay_run r "
            "JOIN assay_tally t ON t.run_no = r.run_no JOIN assay_summary s ON s.run_no = r.run_no "
            "AND s.recorded = t.recorded AND s.attempts = t.attempts "
            f"WHERE r.id IN ({marks})"
        )
        with self._database.read_transaction() as transaction:
            rows = transaction.execute(query, *run_ids).all()
        return {row.id: row.summary for row in rows}

    def run(self, wanted: str = "latest") -> Run:
        """Open a run read-only, by id, unique prefix of an id, or `latest`."""
        with self._database.read_transaction() as transaction:
            row = find_run_row(transaction, wanted, where=self.where)
        return Run(self._database, row.run_no, parse_run_spec(row))

    def earlier_runs(self, run_id: str) -> list[str]:
        """Return the ids of earlier runs with the same name and dataset, newest first.

        Includes failed and interrupted runs.
        """
        query = (
            "SELECT id FROM assay_run WHERE name = ? AND dataset = ? AND run_no < ? "
            "ORDER BY run_no DESC"
        )
        with self._database.read_transaction() as transaction:
            this = find_run_row(transaction, run_id, where=self.where)
            return transaction.execute(query, this.name, this.dataset, this.run_no).scalars()

    def delete_run(self, run_id: str) -> int:
        """Delete a run with all its samples. Return the number of deleted results.

        Raises `ConfigError` when a live process uses the run. Later runs reuse the space;
        `compact` returns it to the disk.
        """
        with self._database.write_transaction() as transaction:
            row = find_run_row(transaction, run_id, where=self.where, lock=True)
            holder = find_live_holders(transaction).get(row.run_no)
            if holder is not None:
                # It would write results again.
                raise ConfigError(
                    f"run {row.id!r} cannot be deleted: it is in use by {holder}",
                    where=self.where,
                    hint="stop that process first",
                )
            # Bodies first: only the rows of `assay_result` map them to the run.
            results = "SELECT result_no FROM assay_result WHERE run_no = ?"
            transaction.execute(
                f"DELETE FROM assay_excerpt WHERE result_no IN ({results})", row.run_no
            )
            deleted = transaction.execute(
                f"DELETE FROM assay_body WHERE result_no IN ({results})", row.run_no
            )
            for table in _RUN_TABLES:
                transaction.execute(f"DELETE FROM {table} WHERE run_no = ?", row.run_no)
            transaction.retire_number(row.run_no)
            return deleted.rowcount

    def compact(self) -> None:
        """Rewrite a SQLite store without the space of deleted runs.

        Needs as much free disk space as the file takes.
        """
        with self._connect_to_file("PostgreSQL frees the space of deleted runs by itself") as file:
            file.execute("VACUUM")
            # VACUUM writes the whole file through the log, which would keep that size.
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, path: str | Path) -> None:
        """Copy a SQLite store to a new file, even while runs are recorded."""
        path = Path(path)
        with self._connect_to_file("back up a PostgreSQL store with pg_dump") as file:
            try:
                create_private(path)
            except FileExistsError:
                raise ConfigError(
                    f"{path} already exists", hint="choose a path that does not exist yet"
                ) from None
            except OSError as error:
                raise StoreError(f"{path} cannot be created: {error.strerror}") from None
            try:
                with closing(sqlite3.connect(path)) as copy:
                    file.backup(copy)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    @contextmanager
    def _connect_to_file(self, otherwise: str) -> Iterator[sqlite3.Connection]:
        # Not through the database: these commands cannot run inside a transaction.
        if self._database.is_postgresql:
            raise ConfigError("the store is not a SQLite file", where=self.where, hint=otherwise)
        try:
            with closing(sqlite3.connect(self.where, isolation_level=None)) as connection:
                yield connection
        except sqlite3.Error as error:
            raise to_store_error(error, where=self.where) from None


def _insert_run(transaction: Transaction, spec: RunSpec) -> int | None:
    """Insert the run of a specification, if it is absent."""
    columns: dict[str, Any] = {
        "id": spec.id,
        "name": to_column_text(spec.name),
        "config": spec.config_json(),
        "config_fingerprint": spec.config_fingerprint,
        "dataset": to_column_text(spec.dataset),
        "dataset_fingerprint": spec.dataset_fingerprint,
        "total": spec.total,
        "repeats": spec.repeats,
        "created_at": spec.created_at,
        **({} if spec.reuses is None else {"reuses": spec.reuses}),
        "status": "running",
        "dataset_changed": False,
    }
    return insert_run_columns(transaction, columns)


def insert_run_columns(transaction: Transaction, columns: Mapping[str, Any]) -> int | None:
    """Insert a run and its tally. Return its number; None if the id already exists."""
    # SQLite would give the number of a deleted run to the next one, and a process that still has
    # the deleted run open would read from it and record into it.
    numbered = transaction.find_retired_number()
    if numbered is not None:
        last = transaction.execute("SELECT max(run_no) FROM assay_run").scalar() or 0
        columns = {"run_no": max(last, numbered) + 1, **columns}
    marks = ", ".join("?" * len(columns))
    run_no: int | None = transaction.execute(
        f"INSERT INTO assay_run ({', '.join(columns)}) VALUES ({marks}) "
        "ON CONFLICT (id) DO NOTHING RETURNING run_no",
        *columns.values(),
    ).scalar()
    if run_no is not None:
        transaction.execute(
            "INSERT INTO assay_tally (run_no, last_result_no) VALUES (?, ?)",
            run_no,
            compute_first_result_no(run_no),
        )
    return run_no


def _to_stored_spec(spec: RunSpec) -> RunSpec:
    """Return the spec as it is read back from the store."""
    return replace(
        spec,
        name=to_column_text(spec.name),
        dataset=to_column_text(spec.dataset),
        config=json.loads(spec.config_json()),
    )


def _reopen(transaction: Transaction, row: Any, spec: RunSpec, *, changed: bool) -> None:
    values: dict[str, Any] = {"status": "running", "finished_at": None}
    if changed:
        values.update(
            dataset=to_column_text(spec.dataset),
            dataset_fingerprint=spec.dataset_fingerprint,
            dataset_changed=True,
        )
    if spec.total is not None:
        values["total"] = spec.total
    if spec.config_fingerprint != row.config_fingerprint:
        # The keys keep the old fingerprint: failed attempts are found by them.
        values.update(
            config=spec.config_json(),
            config_fingerprint=spec.config_fingerprint,
            key_fingerprint=row.key_fingerprint or row.config_fingerprint,
        )
    changes = ", ".join(f"{name} = ?" for name in values)
    transaction.execute(
        f"UPDATE assay_run SET {changes} WHERE run_no = ?", *values.values(), row.run_no
    )


def _resolve_store_path(where: str | Path | None) -> Path:
    if where is None:
        return Path(STORE_FOLDER) / STORE_FILE
    if where in ("", ":memory:"):
        raise ConfigError(f"{where!r} is not the path of a store", where="Store.open()")
    if _POSTGRESQL_PREFIX.match(str(where)):
        # Treated as a path, the password would become the name of a folder.
        raise ConfigError(
            "the URL of a PostgreSQL store must be a string that starts with postgresql://",
            where="Store.open()",
        )
    path = Path(str(where).removeprefix("sqlite:///"))
    if not path.is_dir():
        return path
    # Either the folder of a store, or the folder of a project that contains one.
    project = (path / STORE_FOLDER).is_dir() and not (path / STORE_FILE).exists()
    return path / STORE_FOLDER / STORE_FILE if project else path / STORE_FILE


def _open_file(path: Path, settings: StoreSettings, *, create: bool) -> Database:
    path = path.absolute()
    if not path.exists():
        if not create:
            raise StoreError(
                "the store does not exist", where=str(path), hint="`assay eval` creates one"
            )
        folder = path.parent
        try:
            make_private_folder(folder, SHARED_FOLDER_MODE if settings.shared else FOLDER_MODE)
            if folder.name == STORE_FOLDER and not (folder / ".gitignore").exists():
                (folder / ".gitignore").write_text("*\n", "utf-8")
        except OSError as error:
            raise StoreError(
                f"the store's folder cannot be created: {error.strerror}",
                where=str(folder),
                hint="choose another path for the store",
            ) from None
        # SQLite gives its -wal and -shm files the same permissions. If creating the file fails,
        # opening it below reports why.
        with suppress(OSError):
            create_private(path, SHARED_FILE_MODE if settings.shared else FILE_MODE)
    return open_sqlite(path, settings, create=create)
