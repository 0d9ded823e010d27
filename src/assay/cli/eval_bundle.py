"""`assay eval --bundle`: repeat an evaluation that somebody else bundled."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.errors import ConfigError
from assay.evaluation.config import expect_endpoint
from assay.models import Sample
from assay.record import Store
from assay.sources import load_samples
from assay.sources.bundle import Bundle, BundledCode
from assay.sources.bundle_archive import CODE, DATASET

from .bundle import manifest_lines
from .bundle_import import import_bundle
from .eval_file import EvalFile, load_eval_file
from .overrides import names_model
from .resumption import eval_words
from .run_code import OPTIONS
from .store_option import store_location
from .terminal import plain_lines


@dataclass(frozen=True)
class TrustedBundle:
    """A bundle whose code the user allowed to run."""

    bundle: Bundle
    code: BundledCode
    args: Namespace
    """The options of the command, with those of the bundled run where none were given."""

    @contextmanager
    def extract(self) -> Iterator[EvalFile]:
        """The evaluation, from a private folder that is removed afterwards.

        Inside of it the current folder is the one that corresponds to where the run was made.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="assay-bundle-")))
            folder = folder.resolve()
            self.bundle.extract(folder)
            code = folder / CODE
            for path in self.code.import_folders:
                sys.path.insert(0, str(code / path))
            start = code / self.code.folder
            start.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(chdir(start))
            with expect_endpoint(names_model(self.args)):
                file = load_eval_file(f"{code / self.code.files[0]}:{self.code.config}")
                file = self._with_rows(file, folder / DATASET)
            yield file

    def _with_rows(self, file: EvalFile, rows: Path) -> EvalFile:
        # The rows are those that were used: a limit of the file was applied to them already.
        stream = load_samples(rows, self.args.limit, adapter=Sample.model_validate)
        stream.name = self.bundle.manifest.runs[0].dataset or DATASET
        return replace(file, config=replace(file.config, max_samples=None), dataset=stream)

    def import_results(self, store: Store) -> list[str]:
        """The bundled results as runs of the store, to compare with."""
        return import_bundle(self.bundle, store)


def open_bundle(args: Namespace) -> Bundle:
    """The bundle that was named, checked as a whole. Raises `ConfigError` for a wrong request."""
    if args.file is not None:
        raise ConfigError(
            "--bundle and an evaluation file are given", hint="a bundle has a file of its own"
        )
    path = Path(args.bundle)
    if not path.is_file():
        raise ConfigError(f"the bundle {path} does not exist")
    return Bundle.open(path)


def ask_for_trust(bundle: Bundle, args: Namespace) -> None:
    """Show what a bundle contains and how to run it."""
    print(plain_lines("\n".join(manifest_lines(bundle.manifest))))
    sys.stdout.flush()
    told = (
        "The bundle contains code that would run on this machine, with your permissions. Nothing "
        "was run.\nRead it (tar -xzf), and if you trust it, run it with:\n"
        f"  {shlex.join(eval_words(args))}"
    )
    print(plain_lines(told), file=sys.stderr)


def trust_bundle(bundle: Bundle, args: Namespace) -> TrustedBundle:
    """The bundle, ready to run. Raises `ConfigError` when it has no code."""
    code = bundle.manifest.code
    if code is None:
        raise ConfigError(
            f"{bundle.path} contains no code to run",
            hint="`assay export` and `assay train sft` read its samples; "
            "`assay runs import` records them",
        )
    effective = Namespace(**vars(args))
    for name in OPTIONS:
        if getattr(args, name) is None and name in code.options:
            setattr(effective, name, code.options[name])
    # The current folder changes before the samples are read.
    absolute = replace(bundle, path=Path(os.path.abspath(bundle.path)))
    return TrustedBundle(absolute, code, effective)


def fixed_location(args: Namespace) -> str | Path:
    """Where the store is, also after the current folder changed."""
    where = store_location(args)
    if where is None:
        return Path.cwd() / ".assay" / "assay.db"
    text = os.fspath(where)
    return text if "://" in text else os.path.abspath(text)
