"""The summary file: complete, in one piece, and read back only when it is whole."""

import json
import subprocess
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assay.datasets import load_samples
from assay.errors import ConfigError
from assay.pytest_plugin.evaluation_record import Record
from assay.pytest_plugin.summary_file import (
    check_rows,
    copy_summary,
    digest_rows,
    read_rows,
    read_summary_file,
    rows_path_of,
    write_summary,
)
from assay.types import EvaluateResult, Sample

ONE = Record(
    test="test_a.py::test_one",
    file="test_a.py",
    line=3,
    passed=True,
    score=0.5,
    results=2,
    judged=2,
    cost_usd=0.25,
    input_tokens=10,
)
TWO = replace(
    ONE, test="test_a.py::test_two", passed=False, score=None, judged=0, failed={"scorer": 2}
)


def written(folder: Path, *records: Record) -> Path:
    summary = folder / "summary.json"
    score = EvaluateResult(score=1.0)
    samples = [Sample(id="a", prompt="q", score=score), Sample(id="b", prompt="q")]
    write_summary(summary, records, samples * len(records), root=folder)
    return summary


def test_it_sums_up_all_tests(tmp_path: Path) -> None:
    plain = read_summary_file(written(tmp_path, ONE, TWO))

    assert (plain["score"], plain["passed"], plain["judged"], plain["failed"]) == (0.5, False, 2, 2)
    assert (plain["cost_usd"], plain["input_tokens"], plain["output_tokens"]) == (0.5, 20, None)
    assert [test["test"] for test in plain["tests"]] == [ONE.test, TWO.test]
    assert plain["git_commit"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["summary.json", "summary.jsonl"]


def test_a_sum_is_over_what_is_known_and_the_rest_is_counted(tmp_path: Path) -> None:
    two = replace(TWO, cost_usd=None, unknown={"cost_usd": 2})

    plain = read_summary_file(written(tmp_path, ONE, two))

    assert plain["cost_usd"] == 0.25
    assert plain["input_tokens"] == 20
    assert plain["unknown"] == {"input_tokens": 0, "output_tokens": 0, "cost_usd": 2}


def test_it_names_the_commit_that_was_evaluated(tmp_path: Path) -> None:
    author = ["-c", "user.name=n", "-c", "user.email=e@example.com"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert read_summary_file(written(tmp_path, ONE))["git_commit"] == head.stdout.strip()


def test_the_samples_beside_it_are_a_dataset(tmp_path: Path) -> None:
    summary = written(tmp_path, ONE)

    loaded = list(load_samples(rows_path_of(summary)))

    assert [(sample.id, sample.reward) for sample in loaded] == [("a", 1.0), ("b", None)]
    assert [sample.id for sample in read_rows(summary)] == ["a", "b"]


def test_samples_are_written_one_at_a_time(tmp_path: Path) -> None:
    alive: list[weakref.ref[Sample]] = []

    def stream() -> Iterator[Sample]:
        for number in range(20):
            assert sum(each() is not None for each in alive) <= 1
            sample = Sample(id=str(number))
            alive.append(weakref.ref(sample))
            yield sample

    write_summary(tmp_path / "summary.json", [ONE], stream(), root=tmp_path)

    assert len(list(read_rows(tmp_path / "summary.json"))) == 20


def test_samples_that_cannot_be_read_leave_the_earlier_files(tmp_path: Path) -> None:
    summary = written(tmp_path, ONE)
    before = summary.read_text(), rows_path_of(summary).read_text()

    def stream() -> Iterator[Sample]:
        yield Sample(id="a")
        raise OSError("store gone")

    with pytest.raises(OSError, match="store gone"):
        write_summary(summary, [TWO], stream(), root=tmp_path)

    assert (summary.read_text(), rows_path_of(summary).read_text()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["summary.json", "summary.jsonl"]


def test_a_copy_is_a_summary_of_its_own(tmp_path: Path) -> None:
    summary = written(tmp_path, ONE)

    copy_summary(summary, tmp_path / "kept" / "baseline.json")

    check_rows(tmp_path / "kept" / "baseline.json")
    assert read_summary_file(tmp_path / "kept" / "baseline.json")["rows"] == "baseline.jsonl"


BROKEN = {
    "not JSON": ("{", "the file is not a summary of evaluations: JSONDecodeError"),
    "no format": ("{}", "the file is not a summary of evaluations: KeyError"),
    "a list": ("[]", "the file is not a summary of evaluations: TypeError"),
    "another format": ('{"format": 2, "tests": []}', "the summary has format 2, not 1"),
    "tests in words": ('{"format": 1, "tests": 3}', "the file is not a summary"),
    "tests by name": ('{"format": 1, "tests": {"a": 1}}', "the file is not a summary"),
    "a test without a name": ('{"format": 1, "tests": [{"test": 5}]}', "a test has no name"),
    "a configuration in words": (
        '{"format": 1, "tests": [{"test": "a", "config": "b"}]}',
        "a configuration that is not an object",
    ),
    "three bounds": (
        '{"format": 1, "tests": [{"test": "a", "config": {"bounds": [1, 2, 3]}}]}',
        "a has 0 judged results and the bounds",
    ),
    "nested too deeply": (
        "[" * 100_000,
        "the file is not a summary of evaluations: RecursionError",
    ),
    "a test twice": ('{"format": 1, "tests": [{"test": "a"}, {"test": "a"}]}', "a test twice"),
}


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_what_is_no_summary_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(text)

    with pytest.raises(ConfigError, match=message):
        read_summary_file(tmp_path / "s.json")


def test_samples_of_another_session_are_refused(tmp_path: Path) -> None:
    summary = written(tmp_path, ONE)
    check_rows(summary)

    rows_path_of(summary).write_text(Sample(id="a").to_json() + "\n")
    with pytest.raises(ConfigError, match="contains other samples"):
        check_rows(summary)
    rows_path_of(summary).unlink()
    with pytest.raises(ConfigError, match="the file with the samples of the summary is missing"):
        check_rows(summary)


@pytest.mark.parametrize("line", ["", "[1]", '{"id": "a", "prompt": "\\ud800"}', "\udcff"])
def test_a_line_that_is_no_sample_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    summary = written(tmp_path, ONE)
    with rows_path_of(summary).open("a", errors="surrogateescape") as file:
        file.write(f"{line}\n")

    with pytest.raises(ConfigError, match=r"summary\.jsonl:3: the line is not a sample"):
        list(read_rows(summary))


def test_the_earlier_file_stays_whole_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = written(tmp_path, ONE)

    def refuse(*arguments: object, **options: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(json, "dumps", refuse)
    with pytest.raises(OSError, match="disk full"):
        copy_summary(summary, summary)
    monkeypatch.undo()

    assert read_summary_file(summary)["tests"][0]["test"] == ONE.test


def test_the_digest_of_rows_in_memory_is_that_of_their_content() -> None:
    rows = [{"id": "a", "n": 1}, Sample(id="b", input={"x": float("nan")})]
    same = [{"id": "a", "n": 1}, Sample(id="b", input={"x": float("nan")})]

    assert digest_rows(rows) == digest_rows(same)
    assert digest_rows(rows) != digest_rows(rows[::-1])
    assert digest_rows(rows) != digest_rows([{"id": "a", "n": 2}, rows[1]])


@pytest.mark.parametrize("value", [object(), "\ud800", {1, 2}])
def test_rows_that_are_not_json_have_a_digest_too(value: object) -> None:
    row: list[object] = [{"id": "a", "value": value}]

    assert digest_rows(row) == digest_rows(row)
