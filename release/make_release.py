"""Builds a release twice, checks its wheel in a new environment, and writes dist/.

make release [KEY=key.pem]
"""

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from bill_of_materials import write_bill_of_materials
from provenance import BuildInput, write_provenance

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
TOOLS = ("build", "hatchling", "mkdocs-material")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--key", type=Path, help="sign the provenance with this private key")
    args = parser.parse_args()
    if args.key is not None and not args.key.is_file():
        raise SystemExit(f"{args.key} does not exist; create a key with `assay certify keygen`")
    started = datetime.now(UTC)
    source = replace(read_source(ROOT), tools=name_tools())
    shutil.rmtree(DIST, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="assay-release-") as folder:
        first, second = (build(source, Path(folder) / name) for name in ("first", "second"))
        if problems := list_differences(first, second):
            raise SystemExit("the two builds differ: " + ", ".join(problems))
        shutil.copytree(first, DIST)
        print(f"built twice, identical: {', '.join(digest_files(DIST))}")
        (wheel,) = DIST.glob("*.whl")
        environment = Path(folder) / "environment"
        check_wheel(wheel, environment)
        write_bill_of_materials(wheel, environment, DIST / "sbom.cdx.json", source=source)
    shutil.copy(ROOT / "requirements.lock", DIST)
    write_provenance(DIST, source=source, started=started, digests=digest_files(DIST), key=args.key)
    write_sums(DIST)
    print((DIST / "SHA256SUMS").read_text("utf-8"), end="")


def read_source(root: Path) -> BuildInput:
    """Return the commit that is released. Exits where it is not the one to release."""
    if changed := git(root, "status", "--porcelain").splitlines():
        raise SystemExit(f"commit or remove these files first: {', '.join(changed[:10])}")
    version = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    page = root / "CHANGELOG.md"
    if not page.is_file() or not is_described(version, page.read_text("utf-8")):
        raise SystemExit(f"CHANGELOG.md has no section on {version}; run `make changelog`")
    return BuildInput(
        version=version,
        commit=git(root, "rev-parse", "HEAD"),
        # The date of the commit, not of the build: the same commit gives the same files.
        epoch=int(git(root, "log", "-1", "--format=%ct")),
    )


def name_tools() -> tuple[str, ...]:
    return tuple(f"pkg:pypi/{tool}@{metadata.version(tool)}" for tool in TOOLS)


def is_described(version: str, changelog: str) -> bool:
    return re.search(rf"^## {re.escape(version)} \(", changelog, re.MULTILINE) is not None


def build(source: BuildInput, folder: Path) -> Path:
    """Build the sdist, and the wheel from the sdist, of the files of the commit alone."""
    checkout, out = folder / "source", folder / "dist"
    checkout.mkdir(parents=True)
    archive = subprocess.run(
        ["git", "archive", source.commit], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(checkout)], input=archive, check=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch)}
    if has_site(checkout):
        run(sys.executable, "-m", "mkdocs", "build", "--quiet", cwd=checkout, env=environment)
    # Without isolation: the backend is the one of release/tools.lock.
    run(
        *(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(checkout)),
        env=environment,
    )
    return out


def has_site(root: Path) -> bool:
    """Whether the documentation is built into the wheel."""
    return (root / "mkdocs.yml").exists()


def check_wheel(wheel: Path, environment: Path) -> None:
    """Install the wheel alone and follow the README with it."""
    run(
        *(sys.executable, str(ROOT / "benchmarks" / "first_steps.py"), str(wheel)),
        *("--environment", str(environment)),
        quiet=False,
    )
    if has_site(ROOT):
        run(str(environment / "bin" / "assay"), "docs", "--list", cwd=environment)


def list_differences(one: Path, other: Path) -> list[str]:
    """Return the names of files that two folders do not have in common, byte by byte."""
    left, right = digest_files(one), digest_files(other)
    return sorted(name for name in left | right if left.get(name) != right.get(name))


def digest_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 digest of each file by its name, sorted."""
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.is_file()
    }


def write_sums(folder: Path) -> None:
    """Write the digests of all files, as `sha256sum --check` reads them."""
    lines = [f"{digest}  {name}\n" for name, digest in digest_files(folder).items()]
    (folder / "SHA256SUMS").write_text("".join(lines), "utf-8")


def git(root: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=root, check=True, capture_output=True, encoding="utf-8"
    ).stdout.strip()


def run(
    *words: str, cwd: Path = ROOT, env: dict[str, str] | None = None, quiet: bool = True
) -> None:
    """Run a command. Exits with its output if it fails."""
    ended = subprocess.run(words, cwd=cwd, env=env, capture_output=quiet, encoding="utf-8")
    if ended.returncode:
        output = f":\n{ended.stdout}{ended.stderr}" if quiet else ""
        raise SystemExit(f"`{' '.join(words)}` failed with status {ended.returncode}{output}")


if __name__ == "__main__":
    main()
