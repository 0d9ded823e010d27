"""How a release is refused, compared, described, signed and locked."""

import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import make_release
import pytest
from bill_of_materials import describe
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from provenance import BuildInput, describe_build, name_builder, write_provenance
from verify_release import verify

from assay.certify import KeyPair, generate_key

ROOT = Path(__file__).parents[1]
SOURCE = BuildInput(
    version="0.2.0", commit="a" * 40, epoch=1_700_000_000, tools=("pkg:pypi/build@1",)
)
STARTED = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository whose one commit is ready to be released."""
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (2026-01-01)\n")
    commit(tmp_path, "init", "--quiet")
    commit(tmp_path, "add", ".")
    commit(tmp_path, "commit", "--quiet", "--message", "Release")
    return tmp_path


def commit(folder: Path, *words: str) -> None:
    person = ["-c", "user.name=a", "-c", "user.email=a@example.com"]
    subprocess.run(["git", *person, *words], cwd=folder, check=True)


def test_the_commit_and_its_date_are_released(repository: Path) -> None:
    source = make_release.read_source(repository)

    assert source.version == "0.2.0"
    assert re.fullmatch("[0-9a-f]{40}", source.commit)
    assert source.epoch > SOURCE.epoch


def test_changes_that_are_not_committed_are_refused(repository: Path) -> None:
    (repository / "new.py").touch()

    with pytest.raises(SystemExit, match=r"commit or remove these files first: \?\? new\.py"):
        make_release.read_source(repository)


@pytest.mark.parametrize("page", ["# Changelog\n\n## 0.1.0 (2026-01-01)\n", None])
def test_a_version_without_a_changelog_is_refused(repository: Path, page: str | None) -> None:
    path = repository / "CHANGELOG.md"
    path.unlink()
    if page is not None:
        path.write_text(page)
    commit(repository, "commit", "--all", "--quiet", "--message", "Forget")

    with pytest.raises(SystemExit, match=r"no section on 0\.2\.0; run `make changelog`"):
        make_release.read_source(repository)


def test_builds_that_differ_are_caught(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "a.whl").write_text("same")
        (folder / "b.tar.gz").write_text(folder.name)
    (other / "c.txt").touch()

    assert make_release.list_differences(one, other) == ["b.tar.gz", "c.txt"]
    assert make_release.list_differences(one, one) == []


def test_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_text("a")

    make_release.write_sums(tmp_path)

    checked = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=tmp_path)
    assert checked.returncode == 0


def test_the_bill_lists_what_the_wheel_brings_and_why() -> None:
    bill = describe(distributions(), digest="0" * 64, source=SOURCE)

    scopes = {each["name"].lower(): each["scope"] for each in bill["components"]}
    assert scopes["pydantic"] == "required"
    assert scopes["starlette"] == "optional"
    assert "ruff" not in scopes
    own = bill["metadata"]["component"]
    assert (own["name"], own["hashes"]) == (
        "assay-eval",
        [{"alg": "SHA-256", "content": "0" * 64}],
    )
    references = {own["bom-ref"], *(each["bom-ref"] for each in bill["components"])}
    graph = {each["ref"]: each["dependsOn"] for each in bill["dependencies"]}
    assert graph.keys() == references
    assert {needed for needs in graph.values() for needed in needs} <= references
    assert bill == describe(distributions(), digest="0" * 64, source=SOURCE)


def test_the_provenance_names_files_commit_and_tools() -> None:
    statement = describe_build(SOURCE, started=STARTED, digests={"a.whl": "1" * 64})

    assert statement["subject"] == [{"name": "a.whl", "digest": {"sha256": "1" * 64}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["resolvedDependencies"] == [
        {"name": "source", "digest": {"gitCommit": SOURCE.commit}},
        {"uri": "pkg:pypi/build@1"},
    ]
    assert statement["predicate"]["runDetails"]["metadata"]["startedOn"] == "2026-01-02T00:00:00Z"


def test_the_builder_is_the_workflow_where_there_is_one() -> None:
    workflow = "acme/assay/.github/workflows/release.yml@refs/tags/v1"

    assert name_builder({"GITHUB_WORKFLOW_REF": workflow}) == f"https://github.com/{workflow}"
    assert name_builder({}) == "urn:assay-eval:builder:local"


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, KeyPair]:
    """A folder with a wheel and its signed provenance, and the key."""
    key, dist = generate_key(tmp_path / "key.pem"), tmp_path / "dist"
    dist.mkdir()
    (dist / "a.whl").write_text("wheel")
    digests = make_release.digest_files(dist)
    write_provenance(dist, source=SOURCE, started=STARTED, digests=digests, key=key.private)
    return dist, key


def test_a_signed_release_is_verified(signed: tuple[Path, KeyPair]) -> None:
    dist, key = signed

    assert verify(dist, key.public) == SOURCE.commit


def test_the_signature_of_another_key_is_refused(
    signed: tuple[Path, KeyPair], tmp_path: Path
) -> None:
    dist, _ = signed
    other = generate_key(tmp_path / "other.pem")

    with pytest.raises(SystemExit, match=r"is not signed with .*other\.pub\.pem"):
        verify(dist, other.public)


def test_a_file_that_was_exchanged_or_removed_is_refused(signed: tuple[Path, KeyPair]) -> None:
    dist, key = signed
    (dist / "a.whl").write_text("another wheel")
    with pytest.raises(SystemExit, match=r"a\.whl is not the file that was signed"):
        verify(dist, key.public)

    (dist / "a.whl").unlink()

    with pytest.raises(SystemExit, match=r"a\.whl is missing"):
        verify(dist, key.public)


def test_without_a_key_nothing_is_signed(tmp_path: Path) -> None:
    write_provenance(tmp_path, source=SOURCE, started=STARTED, digests={}, key=None)

    assert [path.name for path in tmp_path.iterdir()] == ["provenance.json"]
    assert json.loads((tmp_path / "provenance.json").read_text())["_type"].endswith("Statement/v1")


def read_lock(text: str) -> dict[str, str]:
    """Return the locked versions, of packages that have a hash, by name."""
    found = re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==([\w.!+]+)[^\n]*\\\n +--hash=", text, re.M)
    return {str(canonicalize_name(name)): version for name, version in found}


def list_requirements(project: dict[str, Any], extras: set[str]) -> Iterator[Requirement]:
    """Yield the requirements of the project with `extras`, including the extras that these name."""
    for text in project["dependencies"]:
        yield Requirement(text)
    queue = sorted(extras)
    for extra in queue:
        for text in project["optional-dependencies"][extra]:
            requirement = Requirement(text)
            if requirement.name == project["name"]:
                queue += sorted(requirement.extras)
            else:
                yield requirement


def list_unlocked(requirements: Iterator[Requirement], locked: dict[str, str]) -> list[str]:
    """Return the requirements that a lock file does not meet."""
    return [
        str(each)
        for each in requirements
        if (found := locked.get(str(canonicalize_name(each.name)))) is None
        or not each.specifier.contains(found)
    ]


def test_the_lock_meets_what_the_project_and_its_tests_require() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    locked = read_lock((ROOT / "requirements.lock").read_text("utf-8"))
    tools = read_lock((ROOT / "release" / "tools.lock").read_text("utf-8"))

    assert list_unlocked(list_requirements(project, {"test"}), locked) == []
    assert list_unlocked(list_requirements(project, {"sign"}), tools) == []
    assert {"packaging", "uv", *make_release.TOOLS} <= tools.keys()
    # Its builds differ by machine: see constraints.txt.
    assert "torch" not in locked


def test_a_requirement_that_is_not_locked_is_caught() -> None:
    project = {
        "name": "assay-eval",
        "dependencies": ["old>=2", "new"],
        "optional-dependencies": {"test": ["assay-eval[view]"], "view": ["page>=1"]},
    }
    locked = read_lock("old==1.9 \\\n    --hash=sha256:00\nnew==1.0\npage==1 \\\n    --hash=x\n")

    missing = list_unlocked(list_requirements(project, {"test"}), locked)

    assert missing == ["old>=2", "new"]
