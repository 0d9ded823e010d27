"""The digests of all code that a certification runs, computed before any of it is imported.

Imported code could change the computation of further digests, or the files themselves.
"""

import shlex
from copy import copy
from pathlib import Path
from typing import Literal

from assay.agents import COMMAND_PREFIX
from assay.scorers import find_ref_file
from assay.types import EvaluationProfile, Manifest, compute_stable_sha256

from .code_scan import CodeFiles
from .source_files import (
    find_command_code,
    find_file_code,
    find_module_code,
)

CHECK_PREFIX = "check:"
CodeKind = Literal["metric", "check", "runner"]


class CodeIndex:
    """The code that a manifest and a command line refer to. Each part is read once."""

    def __init__(
        self, root: Path, manifest: Manifest | None = None, *, run_from: Path | None = None
    ) -> None:
        """`run_from` is the folder in which another process ran the code; None: this one does."""
        self._root = root
        self._run_from = run_from
        self._folder = run_from or Path.cwd()
        self._leave_out = frozenset() if manifest is None else _list_certified_files(root, manifest)
        self._read: dict[tuple[CodeKind, str], CodeFiles | None] = {}

    def add_rubric(self, profile: EvaluationProfile) -> None:
        """Digest the code of all criteria."""
        for criterion in profile.grading_rubric:
            named = criterion.metric or ""
            if named.startswith(CHECK_PREFIX):
                self.find("check", named.removeprefix(CHECK_PREFIX))
            elif ":" in named:
                self.find("metric", named)

    def find(self, kind: CodeKind, name: str) -> CodeFiles | None:
        """Return the code of a name; None if it has no file.

        A metric is `module:function`, a check `FILE` or `FILE#NAME`, with the functions that the
        file refers to, and a runner `module:function`, `FILE.py:function` or a command.
        """
        if (kind, name) not in self._read:
            self._read[kind, name] = self._find_files(kind, name)
        return self._read[kind, name]

    def _find_files(self, kind: CodeKind, name: str) -> CodeFiles | None:
        root, run_from, leave_out = self._root, self._run_from, self._leave_out
        folders = (self._folder, root) if kind == "runner" else (root,)
        if kind == "check":
            path = (root / name.partition("#")[0]).resolve()
            inside = path.is_relative_to(root.resolve()) and path.is_file()
            return find_file_code(path, folders, leave_out, run_from=run_from) if inside else None
        if kind == "runner" and name.startswith(COMMAND_PREFIX):
            try:
                words = shlex.split(name.removeprefix(COMMAND_PREFIX))
            except ValueError:
                words = []
            return find_command_code(words, folders, leave_out, run_from=run_from)
        if kind == "runner" and (named := find_ref_file(name, folders)) is not None:
            is_file = named.is_file()
            return find_file_code(named, folders, leave_out, run_from=run_from) if is_file else None
        return find_module_code(name.partition(":")[0], folders, leave_out, run_from=run_from)

    def code_sha256(self) -> str:
        """Return the digest of all code, without data files."""
        # Data is left out because an agent may write to its own files while it runs.
        code = [
            [*key, each and {name: each.files[name] for name in sorted(each.modules)}]
            for key, each in sorted(self._read.items())
        ]
        return compute_stable_sha256(code)

    @property
    def data(self) -> dict[str, str]:
        """All data files that the code refers to, with the sha256 of each."""
        found: dict[str, str] = {}
        for each in self._read.values():
            found |= {} if each is None else each.data
        return found

    def find_changed_files(self) -> tuple[set[str], set[str]]:
        """Return the code files and the data files that changed since they were read."""
        again = copy(self)
        again._read = {}
        code: set[str] = set()
        data: set[str] = set()
        for (kind, name), before in self._read.items():
            now = again.find(kind, name)
            old, new = (({} if each is None else dict(each.files)) for each in (before, now))
            differ = {file for file in old.keys() | new.keys() if old.get(file) != new.get(file)}
            modules = before.modules if before is not None else frozenset()
            code |= differ & modules
            data |= differ - modules
        return code, data - code


def _list_certified_files(root: Path, manifest: Manifest) -> frozenset[Path]:
    # Manifest and datasets have digests of their own in a certificate.
    profiles = [agent.evaluation for agent in manifest.agents.values()]
    uris = [each.golden_dataset_uri for each in profiles if each and each.golden_dataset_uri]
    datasets = [root / uri.removeprefix("file://") for uri in uris if "\0" not in uri]
    return frozenset(path.resolve() for path in (*(f.path for f in manifest.files), *datasets))
