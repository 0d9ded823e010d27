"""The options of commands that run on a Ray cluster."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Container, Iterable
from dataclasses import replace
from pathlib import Path

from assay.errors import ConfigError
from assay.runner import RaySettings, ShippedCode, refuse_file_store
from assay.scorers import hash_loaded_files
from assay.types import compute_file_sha256

from .arguments import add_count
from .eval_file import is_eval_file, split_target
from .eval_variants import EvalVariant
from .store_option import find_store_location

ENGINE_OPTIONS = ("engine", "ray_address", "workers", "ray_env")
"""The options that a resumed command repeats."""


def add_engine_options(parser: ArgumentParser, *, with_workers: bool = True) -> None:
    """Declare `--engine` and the options of the cluster."""
    parser.add_argument(
        "--engine",
        choices=["ray"],
        help="run the samples on the workers of a Ray cluster; needs a PostgreSQL store",
    )
    parser.add_argument(
        "--ray-address",
        metavar="HOST:PORT",
        help="use the cluster with this head node (default: start one on this machine)",
    )
    if with_workers:
        add_count(parser, "--workers", "run N workers of the cluster (default: one for each CPU)")
    parser.add_argument(
        "--ray-env",
        action="append",
        metavar="NAME",
        help="give workers this environment variable, encrypted (repeatable; the keys of providers "
        "are given anyway)",
    )


def apply_engine_options(
    variants: list[EvalVariant], args: Namespace, ignore: Container[str]
) -> list[EvalVariant]:
    """Return the evaluations with their engine, as `read_engine_options` finds it."""
    scripts = [split_target(args.file)[0]] if is_eval_file(args.file) else []
    refs = (*(args.agent or ()), *(args.scorer or ()))
    settings = read_engine_options(
        args,
        (*scripts, *find_scripts(refs)),
        ignore,
        datasets=[each.file.dataset for each in variants],
        workers_need_engine=False,
    )
    if settings is None:
        return variants
    return [
        replace(each, file=replace(each.file, config=replace(each.file.config, engine=settings)))
        for each in variants
    ]


def find_scripts(refs: Iterable[str]) -> list[Path]:
    """Return the files of references such as `FILE.py:function`."""
    files = [Path(ref.rpartition(":")[0]) for ref in refs]
    return [file for file in files if file.suffix == ".py" and file.is_file()]


def read_engine_options(
    args: Namespace,
    scripts: Iterable[Path] = (),
    ignore: Container[str] = (),
    *,
    datasets: Iterable[object] = (),
    workers_need_engine: bool = True,
) -> RaySettings | None:
    """Return the settings of the cluster; None to run in this process.

    `scripts`: files of the user's code; `ignore`: names of modules that were loaded before them;
    `datasets`: those that this process reads, of which a file is not sent.
    Raises `ConfigError` for options that have no effect without `--engine`, for a store that
    workers cannot write to, and for code that must not be sent to workers.
    """
    if args.engine is None:
        for name in ("ray_address", "ray_env", *(["workers"] if workers_need_engine else [])):
            if getattr(args, name) is not None:
                flag = f"--{name.replace('_', '-')}"
                raise ConfigError(
                    f"{flag} has no effect without an engine", hint=f"add --engine ray to {flag}"
                )
        return None
    refuse_file_store(find_store_location(args))
    key_env = getattr(args, "key_env", None)
    return RaySettings(
        address=args.ray_address,
        workers=args.workers,
        variables=(*(args.ray_env or ()), *([] if key_env is None else [key_env])),
        code=_collect_shipped_code(tuple(dict.fromkeys(scripts)), ignore, datasets),
    )


def _collect_shipped_code(
    scripts: tuple[Path, ...], ignore: Container[str], datasets: Iterable[object]
) -> ShippedCode:
    start = Path.cwd()
    modules = hash_loaded_files(start, ignore=ignore)
    # Scripts count as modules of the first one.
    modules |= {os.path.abspath(each): compute_file_sha256(each) for each in scripts}
    if not modules:
        return ShippedCode({})
    # Imported here: other evaluations need none of it.
    from .bundle_code import CodeRequest, collect_code

    first = scripts[0] if scripts else start / next(iter(modules))
    # Files that code names are sent with it. A dataset may be large, and workers get its samples.
    read_here = [Path(each).resolve() for each in datasets if isinstance(each, str | os.PathLike)]
    request = CodeRequest(kind="eval", scripts=(first,), start=start, modules=modules)
    found = collect_code(replace(request, leave_out=frozenset(read_here)))
    names = {os.path.abspath(path): name for name, path in found.files.items()}
    return ShippedCode(
        files=found.files,
        import_folders=found.code.import_folders,
        folder=found.code.folder,
        scripts=tuple(names[os.path.abspath(script)] for script in scripts),
    )
