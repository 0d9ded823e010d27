"""A worker process of `assay eval --workers`: executes one shard and reports its outcome."""

import os
import pickle
import signal
import sys
import threading
from contextlib import suppress
from dataclasses import replace

from assay.errors import AssayError
from assay.runner import Shard

from .eval_file import is_eval_file
from .eval_invocation import EvalInvocation
from .eval_variants import load_variants
from .eval_workers import WorkerOutcome, WorkerTask, divide_concurrency
from .exit_status import choose_exit_status
from .progress_bar import Display
from .run_code import describe_run_code, replaces_parts
from .run_tracking import RunTrackingStore
from .store_option import find_store_location


def main() -> None:
    """Read the task from stdin, execute it, and write the outcome to stdout."""
    task: WorkerTask = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_stop_when_parent_ends, daemon=True).start()
    # Output of the user's code must not mix with the outcome.
    report = os.dup(1)
    os.dup2(2, 1)
    outcome = run_task(task)
    with os.fdopen(report, "wb") as stream:
        stream.write(pickle.dumps(outcome))
    # A scorer may still block in a thread.
    os._exit(outcome.exit_status)


def run_task(task: WorkerTask) -> WorkerOutcome:
    """Execute a shard. An error becomes a part of the outcome."""
    args = task.args
    shard = Shard.parse(args.shard, args.run)
    shard = replace(shard, allow_changed_dataset=args.allow_changed_dataset)
    loaded = frozenset(sys.modules)
    try:
        file = load_variants(args)[task.variant].file
        config = divide_concurrency(file.config, shard.number, shard.count)
        with RunTrackingStore.open(find_store_location(args)) as store:
            if is_eval_file(args.file) and not replaces_parts(args):
                store.provenance = {"code": describe_run_code(file, args, loaded)}
            invocation = EvalInvocation(file, config, args, None)
            report, _ = invocation.run_shard(store, Display(), shard)
    except AssayError as error:
        # The command adds its own hint to resume.
        cause = error.__cause__ if isinstance(error.__cause__, AssayError) else error
        return WorkerOutcome(str(cause), choose_exit_status(error))
    return WorkerOutcome(skipped=report.skipped)


def _stop_when_parent_ends() -> None:
    # Nothing else is written to this pipe: the read returns when the parent has ended.
    with suppress(OSError):
        os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)
