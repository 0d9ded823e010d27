"""Datasets that are broken, huge, or not the same any more when a run is resumed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import load_samples
from assay.errors import BadRow, ConfigError
from assay.providers import ClientSettings
from assay.runner import EvalConfig, EvalReport, Resume, evaluate
from assay.types import Endpoint, Message, Sample
from misbehaving import Exchange, MisbehavingServer
from processes import Evaluation, Recorded, names, program, write_rows

Start = Callable[..., Evaluation]
GOOD = b'{"id": "a", "question": "a", "answer": "a"}\n'
BAD = {
    "a truncated last line": (b'{"id": "b", "quest', "the last line is truncated"),
    "NaN": (b'{"id": "b", "question": "b", "answer": NaN}\n', "NaN"),
    "a key that comes twice": (b'{"id": "b", "question": "b", "question": "c"}\n', "question"),
    "deep nesting": (b'{"id": "b", "question": "b", "x": ' + b"[" * 5000 + b"\n", "deep"),
    "an id that comes twice": (b'{"id": "a", "question": "b"}\n', "'a' is already used"),
    "bytes that are not UTF-8": (b'{"id": "b", "question": "\xff\xfe"}\n', "UTF-8"),
    "no object": (b'["b"]\n', "object"),
}


def right(sample: Sample) -> bool:
    return bool(sample.response == sample.ground_truth)


def paid(server: MisbehavingServer) -> EvalConfig:
    """A configuration whose calls cost money, as far as assay can know."""
    endpoint = Endpoint(provider="openai", model="m", api_base=server.url, api_key="k-1")
    return EvalConfig(endpoint=endpoint, score_fn=right, client=ClientSettings(max_retries=0))


def evaluated(dataset: Any, config: EvalConfig, **options: Any) -> EvalReport:
    return asyncio.run(evaluate(dataset, config, **options))


@pytest.mark.parametrize("fault", BAD)
def test_a_bad_row_is_found_before_the_first_call_and_named(
    tmp_path: Path, store: Path, server: MisbehavingServer, fault: str
) -> None:
    line, words = BAD[fault]
    dataset = tmp_path / "data.jsonl"
    dataset.write_bytes(GOOD + b"\n" + line)

    with pytest.raises(BadRow) as caught:
        evaluated(dataset, paid(server), store=store)

    assert str(caught.value).startswith(f"{dataset}:3")
    assert words in str(caught.value)
    assert server.calls == []
    assert not store.exists()


def test_what_editors_leave_in_a_file_is_no_fault(
    tmp_path: Path, store: Path, server: MisbehavingServer
) -> None:
    dataset = tmp_path / "data.jsonl"
    second = GOOD.replace(b'"a"', b'"b"').replace(b"\n", b"\r\n")
    dataset.write_bytes(b"\xef\xbb\xbf" + GOOD + b"\r\n  \n" + second + b"\n\n")

    report = evaluated(dataset, paid(server), store=store)

    assert [sample.id for sample in report.samples] == ["a", "b"]
    assert report.mean == 1.0


def test_skipped_rows_are_counted_and_named(
    tmp_path: Path, store: Path, server: MisbehavingServer
) -> None:
    dataset = tmp_path / "data.jsonl"
    broken = [line for line, _ in BAD.values() if line.endswith(b"\n")]
    dataset.write_bytes(GOOD + b"".join(broken) + GOOD.replace(b'"a"', b'"z"'))
    stream = load_samples(dataset, on_bad_row="skip")

    report = evaluated(stream, paid(server), store=store)

    assert [sample.id for sample in report.samples] == ["a", "z"]
    assert server.asked() == Counter(["a", "z"])
    assert stream.skipped.count == len(broken)
    assert [str(problem.where).split(":")[1] for problem in stream.skipped.problems] == [
        str(number) for number in range(2, 2 + len(broken))
    ]


def peak(evaluation: Evaluation) -> int:
    return int(evaluation.said("peak_bytes")[0])


def test_a_huge_row_and_a_long_file_are_read_in_bounded_memory(
    tmp_path: Path, server: MisbehavingServer, start: Start
) -> None:
    endpoint = {"provider": "openai", "model": "m", "api_base": server.url}
    long = "".join(f'{{"question": "{number:0200}"}}\n' for number in range(100_000))
    huge = f'{{"question": "{"x" * 50_000_000}"}}\n'
    runs = {}
    for name, lines in {"short": "", "huge": huge, "long": long}.items():
        dataset, store = tmp_path / f"{name}.jsonl", tmp_path / f"{name}.db"
        dataset.write_text(f'{lines}{{"question": "{name}"}}\n' * (1 if lines else 9) + "{")
        runs[name] = start(program(dataset=dataset, store=store, endpoint=endpoint))

    assert [run.ended() for run in runs.values()] == [3, 3, 3]
    assert "short.jsonl:10" in runs["short"].error["text"]
    assert "huge.jsonl:1:33554433: the line is 50000017 bytes" in runs["huge"].error["text"]
    assert "long.jsonl:100002" in runs["long"].error["text"]
    assert server.calls == []
    # One row up to the limit, and once more while it is looked at; never the file. A long one has a
    # table of ids; its samples, were they kept, would be some 200 MB.
    assert peak(runs["huge"]) < peak(runs["short"]) + 3 * 32 * 1024**2
    assert peak(runs["long"]) < peak(runs["short"]) + 32 * 1024**2


def test_a_long_run_takes_no_more_memory_than_a_short_one(tmp_path: Path, start: Start) -> None:
    runs = {}
    for count in (4_000, 12_000):
        dataset = write_rows(tmp_path / f"{count}.jsonl", names(count, "x" * 1_500))
        store, endpoint = tmp_path / f"{count}.db", {"provider": "mock", "model": "echo"}
        runs[count] = start(program(dataset=dataset, store=store, endpoint=endpoint))

    for count, run in runs.items():
        assert run.ended() == 0, run.stderr
        assert run.summary["judged_samples"] == count
    # Both fill what waits to be written and the pages that the database keeps at hand; the longer
    # one has a table of ids, too. The further samples, were they kept, would be some 140 MB.
    assert peak(runs[12_000]) < peak(runs[4_000]) + 48 * 1024**2


async def refuses_odd_ones(exchange: Exchange) -> None:
    if int(exchange.call.sample[1:]) % 2:
        await exchange.answer(400, {"error": "not yet"})
    else:
        await exchange.echo()


def test_a_changed_dataset_is_refused_or_matched_by_id_but_never_by_position(
    tmp_path: Path, store: Path, server: MisbehavingServer
) -> None:
    server.react = refuses_odd_ones
    first = names(10)
    dataset = write_rows(tmp_path / "data.jsonl", first)
    assert evaluated(dataset, paid(server), store=store).summary.failed == {"endpoint": 5}
    calls = len(server.calls)
    server.react = Exchange.echo
    # Turned round, one taken out, one put in.
    write_rows(dataset, ["r10", *first[:0:-1]])

    with pytest.raises(ConfigError, match="the dataset changed since the run was started"):
        evaluated(dataset, paid(server), store=store, resume="latest")
    assert len(server.calls) == calls
    changed = Resume(allow_changed_dataset=True)
    report = evaluated(dataset, paid(server), store=store, resume=changed)

    assert server.asked(calls) == Counter(["r1", "r3", "r5", "r7", "r9", "r10"])
    assert sorted(Recorded(store).results) == sorted([*first, "r10"])
    assert all(sample.response == sample.id for sample in report.samples)


def test_rows_without_ids_are_matched_by_what_they_say(
    store: Path, server: MisbehavingServer
) -> None:
    server.react = refuses_odd_ones
    rows = [{"question": name, "answer": name} for name in names(10)]
    evaluated(rows, paid(server), store=store)
    calls = len(server.calls)
    server.react = Exchange.echo

    report = evaluated(rows[::-1], paid(server), store=store, resume="latest")

    assert server.asked(calls) == Counter(["r1", "r3", "r5", "r7", "r9"])
    assert report.summary.judged_samples == 10
    assert report.mean == 1.0


def test_a_changed_prompt_is_refused_before_the_first_call(
    tmp_path: Path, store: Path, server: MisbehavingServer
) -> None:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Be brief.")

    def prepared(sample: Sample) -> list[Message]:
        return [Message(role="system", content=prompt.read_text()), *sample.messages]

    server.react = refuses_odd_ones
    dataset = write_rows(tmp_path / "data.jsonl", names(10))
    config = replace(paid(server), prepare_messages=prepared)
    evaluated(dataset, config, store=store)
    calls = len(server.calls)
    prompt.write_text("Be verbose.")

    with pytest.raises(ConfigError, match="the prompt of sample 'r0' changed"):
        evaluated(dataset, config, store=store, resume="latest")

    assert len(server.calls) == calls
    assert sorted(Recorded(store).results) == names(10)[::2]
