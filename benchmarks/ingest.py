"""What reading recorded sessions costs, beside a bare `json.loads` pass over the same bytes.

Sessions are built from the recorded ones of OpenCode 1.18.33, under new ids: in a database, and as
the tree of files of older versions. Each pass runs in a process of its own, which tells its CPU
time and the most memory it had. A pass of assay's makes a sample of each session and writes it as
JSON; the bare pass parses every stored value and keeps none.

    python benchmarks/ingest.py [--sessions 1000,10000] [--layouts database,tree] [--json]
"""

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from peak_memory import peak_bytes

RECORDED = Path(__file__).parents[1] / "tests" / "fixtures" / "opencode" / "1.18.33" / "export"
LAYOUTS = ("database", "tree")
PASSES = ("bare", "assay")
MEMORY_BUDGET = 1.2
"""Most memory of the largest number of sessions, against the smallest."""

_SCHEMA = """
CREATE TABLE session (id text PRIMARY KEY, project_id text, parent_id text, directory text,
    title text, version text, revert text, time_created integer, time_updated integer);
CREATE TABLE message (id text PRIMARY KEY, session_id text, time_created integer, data text);
CREATE TABLE part (id text PRIMARY KEY, message_id text, session_id text, data text);
CREATE INDEX message_session ON message (session_id, time_created, id);
CREATE INDEX part_session ON part (session_id);
CREATE INDEX session_parent ON session (parent_id);
"""


def synthetic(count: int) -> Iterator[dict[str, Any]]:
    """So many sessions as `opencode export` shows them. Whole families keep together."""
    recorded = [path.read_text("utf-8") for path in sorted(RECORDED.glob("ses_*.json"))]
    for number in range(count):
        turn = f"{number // len(recorded):06}"
        text = recorded[number % len(recorded)]
        # The last digits of an id are random anyway; all of a copy get the same ones.
        for kind in ("ses_", "msg_", "prt_"):
            text = text.replace(f'"{kind}', f'"{kind}{turn}')
        yield json.loads(text)


def write_database(root: Path, count: int) -> Path:
    path = root / "opencode.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_SCHEMA)
        for session in synthetic(count):
            _insert(connection, session)
    return path


def _insert(connection: sqlite3.Connection, session: dict[str, Any]) -> None:
    info = session["info"]
    named = ("id", "projectID", "parentID", "directory", "title", "version")
    revert = json.dumps(info["revert"]) if "revert" in info else None
    times = (info["time"]["created"], info["time"]["updated"])
    row = (*(info.get(name) for name in named), revert, *times)
    connection.execute("INSERT INTO session VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    for message in session["messages"]:
        own = message["info"]
        cells = (own["id"], info["id"], own["time"]["created"], json.dumps(own))
        connection.execute("INSERT INTO message VALUES (?, ?, ?, ?)", cells)
        connection.executemany(
            "INSERT INTO part VALUES (?, ?, ?, ?)",
            [(part["id"], own["id"], info["id"], json.dumps(part)) for part in message["parts"]],
        )


def write_tree(root: Path, count: int) -> Path:
    storage = root / "storage"
    for session in synthetic(count):
        info = session["info"]
        _write(storage / "session" / info["projectID"] / f"{info['id']}.json", info)
        for message in session["messages"]:
            own = message["info"]
            _write(storage / "message" / info["id"] / f"{own['id']}.json", own)
            for part in message["parts"]:
                _write(storage / "part" / own["id"] / f"{part['id']}.json", part)
    return root


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), "utf-8")


WRITERS: dict[str, Callable[[Path, int], Path]] = {"database": write_database, "tree": write_tree}


def bare(path: Path) -> tuple[int, int]:
    """Parse every stored value; how many sessions and bytes there are."""
    sessions = size = 0
    if path.is_dir():
        for file in path.rglob("*.json"):
            data = file.read_bytes()
            json.loads(data)
            size += len(data)
            sessions += file.name.startswith("ses_")
        return sessions, size
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        sessions = connection.execute("SELECT count(*) FROM session").fetchone()[0]
        for table in ("message", "part"):
            for (data,) in connection.execute(f"SELECT data FROM {table}"):
                json.loads(data)
                size += len(data)
    return sessions, size


def through_assay(path: Path) -> tuple[int, int]:
    """Make and write a sample of every session; how many sessions and bytes came out."""
    # Here, so that the memory of a bare pass is not assay's.
    from assay.sessions import read_opencode

    stream = read_opencode(path)
    size = sum(len(sample.to_json()) for sample in stream)
    if stream.reading.skipped:
        raise SystemExit(f"not all were read: {stream.reading.skipped[0]}")
    return stream.reading.read + stream.reading.inlined, size


def measure(name: str, path: Path) -> dict[str, Any]:
    """One pass in this process."""
    started, wall = time.process_time(), time.perf_counter()
    sessions, size = (bare if name == "bare" else through_assay)(path)
    return {
        "sessions": sessions,
        "bytes": size,
        "cpu_s": time.process_time() - started,
        "wall_s": time.perf_counter() - wall,
        "peak_bytes": peak_bytes(),
    }


def measured_apart(name: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--measure", name, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def run(sizes: list[int], layouts: list[str]) -> list[dict[str, Any]]:
    figures = []
    for layout in layouts:
        for count in sizes:
            with tempfile.TemporaryDirectory() as folder:
                path = WRITERS[layout](Path(folder), count)
                found = {name: measured_apart(name, path) for name in PASSES}
            stored = found["bare"]["bytes"]
            figures.append({"layout": layout, "sessions": count, "stored_bytes": stored, **found})
    return figures


def table(figures: list[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{'layout':9} {'sessions':>9} {'stored MB':>10} {'sessions/s':>11} {'MB/s':>7} "
        f"{'peak MB':>8} {'bare MB/s':>10} {'CPU, times bare':>16}"
    )
    for each in figures:
        ours, plain, megabytes = each["assay"], each["bare"], each["stored_bytes"] / 1e6
        yield (
            f"{each['layout']:9} {each['sessions']:9} {megabytes:10.1f} "
            f"{each['sessions'] / ours['wall_s']:11.0f} {megabytes / ours['wall_s']:7.1f} "
            f"{ours['peak_bytes'] / 1e6:8.0f} {megabytes / plain['wall_s']:10.1f} "
            f"{ours['cpu_s'] / plain['cpu_s']:16.1f}"
        )
    for layout in dict.fromkeys(each["layout"] for each in figures):
        peaks = [each["assay"]["peak_bytes"] for each in figures if each["layout"] == layout]
        if len(peaks) > 1:
            yield (
                f"{layout}: the largest takes {peaks[-1] / peaks[0]:.2f} times the memory of the "
                f"smallest, budget {MEMORY_BUDGET}"
            )


def sizes(text: str) -> list[int]:
    found = [int(each) for each in text.split(",") if each.isdecimal() and int(each) > 0]
    if len(found) != len(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of numbers such as 1000,10000")
    return found


def layouts(text: str) -> list[str]:
    found = text.split(",")
    if not set(found) <= set(LAYOUTS):
        raise argparse.ArgumentTypeError(f"{text!r} is not among {', '.join(LAYOUTS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sessions", type=sizes, default=[1000, 10000])
    parser.add_argument("--layouts", type=layouts, default=list(LAYOUTS))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", nargs=2, metavar=("PASS", "PATH"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(json.dumps(measure(args.measure[0], Path(args.measure[1]))))
        return
    figures = run(args.sessions, args.layouts)
    print(json.dumps({"ingest": figures}) if args.json else "\n".join(table(figures)))


if __name__ == "__main__":
    main()
