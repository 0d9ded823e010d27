"""Which rollouts belong together: threads, parents, copies; and how little is kept of each."""

import subprocess
import sys
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.sessions import Children, SessionChoice
from assay.sessions.codex import read_codex
from assay.sessions.codex_rollouts import RolloutIndex, find_codex_home, read_rollout
from codex_sessions import Written, compress, write_rollout


def index_of(folder: Path) -> RolloutIndex:
    return RolloutIndex(folder.glob("rollout-*"))


def test_files_of_a_thread_are_sorted_by_when_they_were_begun(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", second=5)
    third = write_rollout(tmp_path, "a", rollout="x", second=9)
    second = write_rollout(tmp_path, "a", rollout="y", second=7)

    found = index_of(tmp_path).threads["a"]

    assert [each.path for each in found] == [str(w.path) for w in (first, second, third)]
    assert [each.rollout_id for each in found] == ["a", "y", "x"]


def test_a_compressed_file_and_its_plain_twin_are_one_rollout(tmp_path: Path) -> None:
    plain = write_rollout(tmp_path, "a", "one").path
    text = plain.read_bytes()
    packed = compress(plain)

    assert [each.path for each in index_of(tmp_path).threads["a"]] == [str(packed)]

    plain.write_bytes(text)
    assert [each.path for each in index_of(tmp_path).threads["a"]] == [str(plain)]
    for path in (tmp_path, plain, packed):
        stream = read_codex(path)
        assert [sample.id for sample in stream] == ["a"]
        assert stream.reading.notes == []


def test_of_two_copies_the_longer_one_is_read_and_the_other_named(tmp_path: Path) -> None:
    longer = write_rollout(tmp_path / "backup", "a", "one", "two").path
    shorter = write_rollout(tmp_path / "sessions", "a", "one").path

    stream = read_codex(tmp_path)
    (sample,) = stream

    assert len(sample.messages) == 4
    assert stream.reading.notes == [f"{shorter}: session a has a longer copy; file skipped"]
    assert stream.reading.damaged == []
    assert longer.exists()


def test_a_renamed_file_of_a_reverted_session_is_no_copy(tmp_path: Path) -> None:
    first = write_rollout(tmp_path, "a", "one", "two")
    second = write_rollout(tmp_path, "a", "x1", rollout="x", base=first.end(1), second=1)
    first.path.rename(tmp_path / "rollout-old.jsonl")
    second.path.rename(tmp_path / "rollout-new.jsonl")

    (sample,) = read_codex(tmp_path)

    assert [message.text for message in sample.messages] == ["one", "ONE", "x1", "X1"]


def test_other_files_beside_rollouts_are_left_alone(tmp_path: Path) -> None:
    path = write_rollout(tmp_path, "a", "one").path
    path.with_suffix(".jsonl.tmp").write_text("half")
    path.with_suffix(".jsonl.zst.tmp").write_text("half")

    stream = read_codex(tmp_path)

    assert [sample.id for sample in stream] == ["a"]
    assert stream.reading.skipped == []


def test_a_session_whose_first_line_is_damaged_keeps_its_id(tmp_path: Path) -> None:
    path = write_rollout(tmp_path, "a", "one").path
    path.write_text("{broken\n" + path.read_text())

    assert read_rollout(str(path)).thread_id == "a"
    assert [sample.id for sample in read_codex(path)] == ["a"]


def test_parents_that_start_each_other_are_all_read(tmp_path: Path) -> None:
    links = [("a", "b"), ("b", "a"), ("c", "c"), ("d", "b")]
    for number, (thread, parent) in enumerate(links):
        write_rollout(tmp_path, thread, thread, parent_thread_id=parent, second=number)

    stream = read_codex(tmp_path, children="separate")

    assert sorted(sample.id for sample in stream) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("children", get_args(Children))
def test_subagents_at_any_depth_are_read(tmp_path: Path, children: Children) -> None:
    for depth in range(30):
        parent: dict[str, Any] = {} if depth == 0 else {"parent_thread_id": f"s{depth - 1:02}"}
        write_rollout(tmp_path, f"s{depth:02}", "hi", second=depth, **parent)

    stream = read_codex(tmp_path, children=children)
    samples = list(stream)

    told = stream.reading
    assert len(samples) + told.inlined + told.dropped == 30
    assert told.skipped == []
    if children == "inline":
        assert [sample.id for sample in samples] == ["s00", "s09", "s18", "s27"]
        assert samples[1].metadata["parent_id"] == "s08"


def test_a_home_is_found_from_every_folder_in_it(tmp_path: Path) -> None:
    day = tmp_path / "sessions/2026/11/16"
    file = write_rollout(day, "a").path

    for path in (tmp_path, tmp_path / "sessions", day, day.parent, file):
        assert find_codex_home(path) == tmp_path.resolve()
    assert (
        find_codex_home(write_rollout(tmp_path / "elsewhere", "b").path) == tmp_path / "elsewhere"
    )


def test_only_ids_and_positions_of_each_file_are_kept(tmp_path: Path) -> None:
    count = 300
    fat: dict[str, Any] = {
        "base_instructions": {"text": "x" * 20_000},
        "dynamic_tools": ["y" * 5_000],
    }
    for number in range(count):
        write_rollout(tmp_path, f"thread-{number:032}", "one", second=number, **fat)
    index_of(tmp_path)

    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        index = index_of(tmp_path)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert len(index.roots) == count
    assert kept < 1_500 * count


_TRACED_PASS = """
import sys, tracemalloc
from pathlib import Path
from assay.sessions.codex import read_codex
folder = Path(sys.argv[1])
list(read_codex(folder))
tracemalloc.start()
seen = sum(len(sample.messages) for sample in read_codex(folder))
print(seen, tracemalloc.get_traced_memory()[1])
"""


def test_a_pass_over_many_files_keeps_no_session(tmp_path: Path) -> None:
    fat: dict[str, Any] = {"base_instructions": {"text": "x" * 50_000}}
    for number in range(200):
        write_rollout(tmp_path, f"thread-{number:032}", "one", second=number, **fat)
    # In a process of its own: the tracer counts all threads, also those that other tests left.
    printed = subprocess.run(
        [sys.executable, "-c", _TRACED_PASS, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    seen, peak = map(int, printed.split())

    assert seen == 600
    assert peak < 3_000_000 < 200 * 50_000


Session = dict[str, Any]


@st.composite
def folders(draw: st.DrawFn) -> list[Session]:
    """Sessions that may fork, revert or be started by others, be damaged, empty or compressed."""
    sessions: list[Session] = []
    for number in range(draw(st.integers(1, 7))):
        earlier = st.sampled_from(range(number)) if number else st.nothing()
        sessions.append(
            {
                "kind": draw(st.sampled_from(["plain", "plain", "fork", "revert", "child"])),
                "of": draw(earlier | st.none()),
                "turns": draw(st.integers(0, 3)),
                "kept": draw(st.integers(0, 4)),
                "broken": draw(st.sampled_from([None] * 6 + ["gone", "rubbish", "cycle"])),
                "packed": draw(st.booleans()),
            }
        )
    return sessions


def write_folder(folder: Path, sessions: list[Session]) -> tuple[set[str], int]:
    """Write the rollouts; the ids of readable sessions, and the number of unreadable files."""
    written: list[Written] = []
    threads: list[str] = []
    for number, each in enumerate(sessions):
        other = each["of"]
        kind = each["kind"] if other is not None else "plain"
        thread = threads[other] if kind == "revert" else f"s{number}"
        more: dict[str, Any] = {"parent_thread_id": threads[other]} if kind == "child" else {}
        if kind in ("fork", "revert"):
            positions = written[other].positions
            more["base"] = positions[min(each["kept"], len(positions) - 1)]
        if each["broken"] == "cycle":
            more["base"] = {"thread_id": f"r{number}", "end_ordinal_exclusive": 1}
        rollout = f"r{number}" if kind == "revert" else None
        turns = [f"{number}-{turn}" for turn in range(each["turns"])]
        written.append(
            write_rollout(folder, thread, *turns, rollout=rollout, second=number, **more)
        )
        threads.append(thread)
    readable: set[str] = set()
    unreadable = 0
    for thread, rollout_file, each in zip(threads, written, sessions, strict=True):
        if each["broken"] == "gone":
            rollout_file.path.unlink()
            continue
        if each["broken"] == "rubbish":
            rollout_file.path.write_text("rubbish\n")
            unreadable += 1
        else:
            readable.add(thread)
        if each["packed"]:
            compress(rollout_file.path)
    return readable, unreadable


@settings(max_examples=60, deadline=None)
@given(
    sessions=folders(),
    children=st.sampled_from(get_args(Children)),
    chosen=st.frozensets(st.integers(0, 6), max_size=2),
)
def test_every_session_of_a_folder_is_counted_once(
    sessions: list[Session], children: Children, chosen: frozenset[int]
) -> None:
    with TemporaryDirectory() as name:
        readable, unreadable = write_folder(Path(name), sessions)
        choice = SessionChoice(sessions=frozenset(f"s{each}" for each in chosen))
        stream = read_codex(name, choice, children=children)
        if not readable and not unreadable:
            return
        samples = list(stream)

    told = stream.reading
    counts = (told.inlined, told.dropped, told.empty, told.not_chosen, len(told.skipped))
    assert len(samples) + sum(counts) == len(readable) + unreadable
    assert len({sample.id for sample in samples}) == len(samples) == told.read
    for sample in samples:
        asked = [message.text for message in sample.messages if message.role == "user"]
        undone = [each["content"] for each in sample.metadata.get("reverted_messages", [])]
        assert len(set(asked)) == len(asked)
        assert not set(asked) & set(undone)
