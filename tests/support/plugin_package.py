"""Packages with entry points, written as an installation leaves them: a module and its metadata."""

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install_package(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: Mapping[str, str],
    *,
    name: str = "acme-assay",
    code: str = "",
) -> None:
    """Install a package for one test. `entries` are its entry points: {"scorers.polite": "m:f"}."""
    site = folder / f"site-{name}"
    info = site / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = []
    for key, value in entries.items():
        group, _, entry = key.partition(".")
        lines.append(f"[assay.{group}]\n{entry} = {value}\n")
    (info / "entry_points.txt").write_text("".join(lines))
    module = name.replace("-", "_")
    (site / f"{module}.py").write_text(code)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, module, raising=False)
