"""What commands leave on disk is for its owner to read, whatever the umask."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assay.export import ExportOptions, export_samples
from assay.providers import ClientSettings
from assay.runner import EvalConfig
from assay.store import Store, StoreSettings
from assay.types import Endpoint, EvaluateResult
from make import asked, said, sample
from processes import Evaluation, assay, write_rows
from runner_runs import ECHO, right, rows, run

Start = Callable[..., Evaluation]


def modes(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): f"{path.stat().st_mode & 0o777:o}"
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(params=[0o022, 0o077])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_a_store_and_the_files_beside_it_are_private(tmp_path: Path) -> None:
    with Store.open(tmp_path / ".assay" / "assay.db") as store:
        run(rows(2), EvalConfig(endpoint=ECHO, score_fn=right), store=store)
        found = modes(tmp_path)

    assert found.pop(".assay") == "700"
    assert found.pop(".assay/.gitignore")
    assert found == dict.fromkeys([f".assay/assay.db{end}" for end in ("", "-shm", "-wal")], "600")


@pytest.mark.usefixtures("umask")
def test_a_shared_store_is_open_to_its_group(tmp_path: Path) -> None:
    with Store.open(tmp_path / "team" / "s.db", settings=StoreSettings(shared=True)) as store:
        run(rows(1), EvalConfig(endpoint=ECHO, score_fn=right), store=store)

        assert set(modes(tmp_path).values()) == {"770", "660"}


def test_a_store_keeps_the_permissions_that_it_was_given(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    Store.open(path).close()
    path.chmod(0o640)

    with Store.open(path) as store:
        run(rows(1), EvalConfig(endpoint=ECHO, score_fn=right), store=store)

        assert set(modes(tmp_path).values()) == {"640"}


@pytest.mark.usefixtures("umask")
def test_the_cache_is_private(tmp_path: Path) -> None:
    client = ClientSettings(cache=tmp_path / "cache")
    endpoint = Endpoint(provider="mock", model="fixed", extra_params={"text": "Hi"})

    run(rows(1), EvalConfig(endpoint=endpoint, score_fn=right, client=client), store=tmp_path / "s")

    found = modes(tmp_path / "cache")
    assert {found[name] for name in found if name.endswith(".json")} == {"600"}
    assert {found[name] for name in found if not name.endswith(".json")} == {"700"}


@pytest.mark.usefixtures("umask")
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_an_export_is_private_and_keeps_a_chosen_mode(name: str, tmp_path: Path) -> None:
    def export() -> None:
        done = sample(asked("?"), said("!"), score=EvaluateResult(score=1.0), ground_truth="!")
        form = "verl" if name.endswith("parquet") else "sample"
        options = ExportOptions(force=True)
        export_samples([done], tmp_path / name, form, options=options)

    export()
    assert set(modes(tmp_path).values()) == {"600"}

    (tmp_path / name).chmod(0o644)
    export()
    assert modes(tmp_path)[name] == "644"


def test_commands_and_pytest_leave_private_files(tmp_path: Path, start: Start) -> None:
    write_rows(tmp_path / "data.jsonl", ["r0"])
    (tmp_path / "test_it.py").write_text(
        "from assay.pytest_plugin import evaluation_test\n"
        "@evaluation_test('data.jsonl', endpoint='mock:echo')\n"
        "def test_it(sample):\n    return 1.0\n"
    )
    session = start([*assay()[:2], "pytest", "-q", "test_it.py", "-p", "no:cacheprovider"])
    assert session.ended() == 0, session.stdout
    summary = ".assay/summary.json"
    exported = start(assay("export", "sample", summary, "--all", "-o", "out.jsonl"))
    assert exported.ended() == 0, exported.stderr

    found = modes(tmp_path / ".assay")
    found.pop(".gitignore", None)
    assert (tmp_path / ".assay").stat().st_mode & 0o777 == 0o700
    assert set(found.values()) == {"600"}, found
    assert modes(tmp_path)["out.jsonl"] == "600"
