"""Evaluations in a process of their own: `python program.py '[{"dataset": …, "store": …}]'`.

Writes a line of JSON for each thing that tests wait for: an acknowledged sample, a recorded
failure, an error, the report. An error also goes to stderr with its traceback, as everything does
that is logged.
"""

import asyncio
import json
import logging
import math
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from assay.errors import AssayError
from assay.providers import ClientSettings
from assay.runner import EvalConfig, EvalReport, Resume, evaluate
from assay.store import Store, StoreSettings, Writer
from assay.store.database import Database, DriverConnection
from assay.store.insert_rows import RESULT_COLUMNS, InsertRow
from assay.store.writer import WriteCallback
from assay.types import Endpoint, EvaluateResult, Sample
from memory import peak_bytes


def right(sample: Sample) -> bool:
    return bool(sample.response == sample.ground_truth)


def raises_on_three(sample: Sample) -> bool:
    if sample.id in ("r3", "r7"):
        raise KeyError("no such column")
    if sample.id == "r50":
        sys.exit(0)
    return True


def returns_what_it_is_told(sample: Sample) -> object:
    values: dict[str, object] = {
        "nan": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "none": None,
        "text": "1.0",
        "list": [1.0],
        "huge": 10**400,
        "nearly-inf": 1e308,
        "complex": 1j,
        "invalid": EvaluateResult(score=1.0, is_score_valid=False, reason="cannot say"),
        "large": 7.0,
        "one": 1,
    }
    return values[str(sample.ground_truth)]


async def never_returns(sample: Sample) -> bool:
    if sample.id == "r3":
        await asyncio.Event().wait()
    return True


SCORERS: dict[str, Callable[[Sample], object]] = {
    function.__name__: function
    for function in (right, raises_on_three, returns_what_it_is_told, never_returns)
}

acknowledged = 0


def say(kind: str, value: object) -> None:
    # In one write and at once: a line that was seen is a thing that has happened.
    os.write(1, json.dumps({kind: value}).encode() + b"\n")


def tell_acknowledgements(after: dict[int, Callable[[], None]]) -> None:
    """Say when the store has confirmed a sample, and do what is to happen after so many."""
    submit = Writer.submit

    def told(self: Writer, entries: Sequence[InsertRow], settled: WriteCallback) -> None:
        def watched(outcome: list[bool] | AssayError) -> None:
            if not isinstance(outcome, AssayError):
                for entry, fresh in zip(entries, outcome, strict=True):
                    tell(entry, fresh)
            settled(outcome)

        submit(self, entries, watched)

    def tell(entry: InsertRow, fresh: bool) -> None:
        global acknowledged
        sample_id = entry.values[RESULT_COLUMNS.index("sample_id") - 1]
        if entry.failed:
            say("failed", sample_id)
        elif fresh:
            say("kept", sample_id)
            acknowledged += 1
            after.get(acknowledged, lambda: None)()

    Writer.submit = told  # type: ignore[method-assign]  # the process is only for watching this


def break_store(how: str, store: Path) -> Callable[[], None]:
    """What makes writing fail from then on."""

    def no_file_may_grow() -> None:
        size = max(path.stat().st_size for path in store.parent.glob(f"{store.name}*"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    def each_connection(statement: str) -> None:
        acquire = Database._acquire

        def prepare(self: Database) -> DriverConnection:
            connection = acquire(self)
            connection.execute(statement)
            return connection

        Database._acquire = prepare  # type: ignore[method-assign]  # in this process only

    return {
        "no file may grow": no_file_may_grow,
        "no page is left": lambda: each_connection("PRAGMA max_page_count = 1"),
        "read-only": lambda: each_connection("PRAGMA query_only = ON"),
    }[how]


async def evaluated(options: dict[str, Any]) -> EvalReport:
    client = dict(options.get("client", {}))
    if "cache" in client:
        client["cache"] = Path(client["cache"])
    config = EvalConfig(
        endpoint=Endpoint(**options["endpoint"]),
        score_fn=SCORERS[options.get("scorer", "right")],
        client=ClientSettings(**client),
        **options.get("config", {}),
    )
    resume = Resume(**options["resume"]) if "resume" in options else None
    settings = StoreSettings(**options.get("store_settings", {}))
    with Store.open(options["store"], settings=settings) as store:
        return await evaluate(Path(options["dataset"]), config, store=store, resume=resume)


async def main(options: dict[str, Any]) -> int:
    try:
        report = await evaluated(options)
    except AssayError as error:
        traceback.print_exc()
        say("error", {"kind": type(error).__name__, "text": str(error)})
        return 3
    else:
        say("report", {"run": report.run_id, "summary": report.summary.model_dump(mode="json")})
        return 0
    finally:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        say("left", [repr(task) for task in left])
        say("peak_bytes", peak_bytes())


if __name__ == "__main__":
    every = json.loads(sys.argv[1])
    logging.basicConfig(level=logging.DEBUG if every[0].get("verbose") else logging.WARNING)
    then = {}
    if "breaks" in every[0]:
        then[every[0]["breaks_after"]] = break_store(every[0]["breaks"], Path(every[0]["store"]))
    tell_acknowledgements(then)
    sys.exit(max(asyncio.run(main(options)) for options in every))
