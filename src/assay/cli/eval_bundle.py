"""`assay eval --bundle`: repeat a bundled evaluation on this machine."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from assay.datasets import CODE, DATASET_FILE, Bundle, BundledCode, load_samples
from assay.errors import ConfigError
from assay.runner import expect_endpoint, is_recording_file
from assay.store import Store
from assay.types import Sample

from .arguments import DEFAULT_GRACE_S
from .bundle import format_bundle_manifest
from .bundle_import import import_bundle
from .eval_file import EvalFile, load_eval_file
from .eval_overrides import names_model
from .output import ask_yes_or_no, print_message
from .run_code import RECORDED_OPTIONS, REPLACING_OPTIONS
from .store_option import find_store_location

# A bundle repeats an evaluation, in this process.
REFUSED_OPTIONS = (*REPLACING_OPTIONS, "engine", "ray_address", "ray_env")
FORWARDED_OPTIONS = ("model", "max_samples", "fail_on_error", "max_cost_usd", "replay")
"""Options that the tests of a bundle take. All others are refused: they would be ignored."""

_OPTIONS_OF_ANY_BUNDLE = frozenset({"file", "list", "bundle", "trust", "store", "json", "quiet"})


@dataclass(frozen=True)
class TrustedBundle:
    """A bundle with code that the user allowed to run."""

    bundle: Bundle
    code: BundledCode
    args: Namespace
    """The options of the command, with those of the bundled run where none were given."""

    @contextmanager
    def extract(self) -> Iterator[EvalFile]:
        """Extract the evaluation into a private folder that is removed afterwards.

        Inside, the current folder corresponds to the one in which the run was made.
        """
        with ExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="assay-bundle-")))
            folder = folder.resolve()
            self.bundle.extract(folder)
            code = folder / CODE
            for path in self.code.import_folders:
                # Not removed again: the scorers may import modules while the run is in progress.
                sys.path.insert(0, str(code / path))
            start = code / self.code.folder
            start.mkdir(mode=0o700, parents=True, exist_ok=True)
            stack.enter_context(chdir(start))
            with expect_endpoint(names_model(self.args)):
                file = load_eval_file(f"{code / self.code.files[0]}:{self.code.config}")
                file = self._replace_dataset(file, folder / DATASET_FILE)
            yield file

    def _replace_dataset(self, file: EvalFile, rows: Path) -> EvalFile:
        # The file's own limit was already applied to the bundled rows.
        stream = load_samples(rows, self.args.max_samples, adapter=Sample.model_validate)
        stream.name = self.bundle.manifest.runs[0].dataset or DATASET_FILE
        return replace(file, config=replace(file.config, max_samples=None), dataset=stream)

    def import_results(self, store: Store) -> list[str]:
        """Record the bundled results as runs to compare with; return their ids."""
        return import_bundle(self.bundle, store)


def refuse_options(bundle: Bundle, args: Namespace) -> None:
    """Raise `ConfigError` for options that would be ignored when the bundle is repeated."""
    code, given = bundle.manifest.code, vars(args)
    of_tests = code is not None and code.kind == "pytest"
    what = "the tests of a bundle" if of_tests else "a bundle, which repeats an evaluation"
    names = set(REFUSED_OPTIONS)
    if of_tests:
        names = given.keys() - _OPTIONS_OF_ANY_BUNDLE - set(FORWARDED_OPTIONS)
    for name in sorted(names):
        value = given[name]
        # Not by equality: a seed of 0 is given.
        is_given = value is not None and value is not False
        if is_given and (name != "grace_s" or value != DEFAULT_GRACE_S):
            raise ConfigError(f"--{name.replace('_', '-')} has no effect on {what}")
    if args.replay is None:
        return
    if is_recording_file(args.replay):
        # The current folder changes before the recording is read.
        args.replay = os.path.abspath(args.replay)
    elif of_tests:
        raise ConfigError(
            f"--replay {args.replay} is not a file, which the tests of a bundle need",
            hint="write one with `assay runs record RUN -o FILE.jsonl`",
        )


def open_bundle(args: Namespace) -> Bundle:
    """Open the named bundle and verify all of it. Raises `ConfigError` for a usage error."""
    if args.file is not None:
        raise ConfigError(
            "--bundle and an evaluation file are both given",
            hint="leave out the file: the bundle contains its own",
        )
    path = Path(args.bundle)
    if not path.is_file():
        raise ConfigError(f"the bundle {path} does not exist")
    return Bundle.open(path)


def confirm_code(bundle: Bundle, *, quiet: bool) -> bool:
    """List the code of a bundle, and ask in a terminal whether to run it.

    Without a terminal the command itself is the consent.
    """
    interactive = sys.stdin is not None and sys.stdin.isatty()
    # In CI the command line itself is the consent, and --quiet wants no listing.
    if quiet and not interactive:
        return True
    listing = "\n".join(format_bundle_manifest(bundle.manifest))
    notice = "The code of this bundle runs on this machine with your permissions."
    print_message(f"{listing}\n{notice}")
    if not interactive:
        return True
    if ask_yes_or_no("Run it?"):
        return True
    print_message("Nothing was run. Read the code with `tar -xzf`.")
    return False


def trust_bundle(bundle: Bundle, args: Namespace) -> TrustedBundle:
    """Prepare the bundle to run. Raises `ConfigError` when it has no code."""
    code = bundle.manifest.code
    if code is None:
        raise ConfigError(
            f"{bundle.path} contains no code to run",
            hint="`assay export` and `assay train sft` read its samples; "
            "`assay runs import` records them",
        )
    effective = Namespace(**vars(args))
    for name, kind in RECORDED_OPTIONS.items():
        if getattr(args, name) is None and name in code.options:
            value = code.options[name]
            if type(value) is not kind:
                raise ConfigError(f"{bundle.path} sets the option `{name}` to {value!r:.40}")
            setattr(effective, name, value)
    # Absolute: the current folder changes before the samples are read.
    absolute = replace(bundle, path=Path(os.path.abspath(bundle.path)))
    return TrustedBundle(absolute, code, effective)


def resolve_store_location(args: Namespace) -> str | Path:
    """Return the absolute location of the store, valid after the current folder changes."""
    where = find_store_location(args)
    if where is None:
        return Path.cwd() / ".assay" / "assay.db"
    text = os.fspath(where)
    return text if "://" in text else os.path.abspath(text)
