"""A worker process of `--workers`: executes one shard and reports its outcome.

Messages are lines of JSON. The task, requests to stop, grants of the budget and the refusals of
other workers come on stdin; costs, the refusals of this one and its outcome leave on stdout.
"""

import json
import os
import signal
import sys
import threading
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from typing import BinaryIO

from assay.datasets import SkippedRows
from assay.errors import AssayError
from assay.providers import LIMIT_SHARE, REFUSALS
from assay.runner import BUDGET, Shard

from .eval_file import is_eval_file
from .eval_invocation import EvalInvocation
from .eval_variants import load_variants
from .eval_workers import WorkerOutcome, WorkerTask, encode_message
from .exit_status import choose_exit_status
from .progress_bar import Display
from .run_code import describe_run_code, replaces_parts
from .run_tracking import RunTrackingStore
from .store_option import find_store_location


def main() -> None:
    """Read the task from stdin, execute it, and write the outcome to stdout."""
    received, sent = os.fdopen(os.dup(0), "rb"), os.dup(1)
    # Code of the user can neither read messages nor write among them.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    line = received.readline()
    if not line:
        return  # the command was killed before it sent the task
    task = WorkerTask.decode(line)

    def send(**message: object) -> None:
        # One system call for a line, which those of other threads cannot interrupt. Without the
        # parent nobody reads it, and this process ends.
        with suppress(OSError):
            os.write(sent, encode_message(**message))

    REFUSALS.open(lambda endpoint, pause_s: send(refused=[endpoint, pause_s]))
    BUDGET.open(lambda message: send(budget=message))
    threading.Thread(target=_receive_messages, args=(received,), daemon=True).start()
    outcome = run_task(task)
    with os.fdopen(sent, "wb") as stream:
        stream.write(outcome.encode())
    # A scorer may still block in a thread.
    os._exit(outcome.exit_status)


def run_task(task: WorkerTask) -> WorkerOutcome:
    """Execute a shard. An error becomes a part of the outcome."""
    shard = Shard.parse(task.shard, task.run)
    shard = replace(shard, is_worker=True, total=task.total, failed_before=task.failed_before)
    # Also for the clients that the user's code connects, such as those of judges.
    LIMIT_SHARE.set(shard.number - 1, shard.count)
    try:
        # Imported here: they load what an evaluation, in as many processes, does not need.
        if task.command == "score":
            from .score import score_shard

            score_shard(task.args, shard)
            return WorkerOutcome()
        if task.command == "check":
            from .check import check_shard

            return WorkerOutcome(skipped=check_shard(task.args, shard))
        if task.command == "judge":
            from .judge import judge_shard

            skipped, spending = judge_shard(task.args, shard)
            return WorkerOutcome(skipped=skipped, spending=vars(spending))
        return WorkerOutcome(skipped=_evaluate_shard(task, shard))
    except AssayError as error:
        # The command adds its own hint to resume.
        cause = error.__cause__ if isinstance(error.__cause__, AssayError) else error
        return WorkerOutcome(str(cause), choose_exit_status(error))


def _evaluate_shard(task: WorkerTask, shard: Shard) -> SkippedRows:
    args = Namespace(**{**vars(task.args), "shard": task.shard, "run": task.run})
    shard = replace(shard, allow_changed_dataset=args.allow_changed_dataset)
    loaded = frozenset(sys.modules)
    file = load_variants(args)[task.variant].file
    config = replace(file.config, concurrency=LIMIT_SHARE.take(file.config.concurrency))
    with RunTrackingStore.open(find_store_location(args)) as store:
        if is_eval_file(args.file) and not replaces_parts(args):
            store.provenance = {"code": describe_run_code(file, args, loaded)}
        invocation = EvalInvocation(file, config, args, None)
        report, _ = invocation.run_shard(store, Display(), shard)
    return report.skipped


def _receive_messages(lines: BinaryIO) -> None:
    stops = 0
    for line in lines:
        match json.loads(line):
            case {"refused": [endpoint, pause_s]}:
                REFUSALS.receive(endpoint, pause_s)
            case {"budget": answer}:
                BUDGET.receive(answer)
            case {"stop": level}:
                # As Ctrl-C in a command of its own: once to finish samples, twice to stop now.
                while stops < level:
                    stops += 1
                    os.kill(os.getpid(), signal.SIGINT)
    # The pipe ends when the parent has ended.
    os.kill(os.getpid(), signal.SIGTERM)
