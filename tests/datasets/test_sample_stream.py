"""`SampleStream`: passes, skipped rows, ids, adapters."""

import pickle
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import ReadLimits, load_samples
from assay.errors import BadRow, DatasetError
from assay.types import Sample, stable_id
from memory import peak_of


def lines(tmp_path: Path, *rows: str) -> Path:
    path = tmp_path / "data.jsonl"
    path.write_text("".join(row + "\n" for row in rows))
    return path


def test_a_bad_row_fails_with_its_place_by_default(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"prompt": "a"}', '{"x": 1}')
    samples = iter(load_samples(path))

    assert next(samples).prompt == "a"
    with pytest.raises(BadRow, match=r"data\.jsonl:2: no known layout has these columns: 'x'"):
        next(samples)


def test_skipped_rows_are_counted_and_described(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"prompt": "a"}', '{"x": 1}', '{"prompt": NaN}', '{"prompt": "b"}')

    stream = load_samples(path, on_bad_row="skip")

    assert [(sample.prompt, sample.index) for sample in stream] == [("a", 0), ("b", 3)]
    assert stream.read == 4
    assert stream.skipped
    assert stream.skipped.count == 2
    assert [problem.where for problem in stream.skipped.problems] == [f"{path}:2", f"{path}:3:12"]
    assert str(stream.skipped) == (
        f"2 of 4 rows skipped: {path}:2: no known layout has these columns: 'x'; "
        f"{path}:3:12: the line contains NaN, which is not JSON"
    )


def test_all_skipped_rows_are_counted_though_not_all_are_described() -> None:
    stream = load_samples([{"x": n} for n in range(50)], on_bad_row="skip")

    assert list(stream) == []
    assert stream.skipped.count == 50
    assert len(stream.skipped.problems) == 20
    assert str(stream.skipped).endswith("; and 30 more")


def test_problems_need_not_be_described_to_be_counted() -> None:
    stream = load_samples([{}], on_bad_row="skip", limits=ReadLimits(max_problems=0))

    assert list(stream) == []
    assert str(stream.skipped) == "1 of 1 rows skipped"


def test_nothing_skipped_says_so() -> None:
    stream = load_samples([{"prompt": "a"}], on_bad_row="skip")

    assert len(list(stream)) == 1
    assert not stream.skipped
    assert str(stream.skipped) == "0 of 1 rows skipped"


def test_every_loop_reads_a_path_from_the_beginning(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"prompt": "a"}', "{", '{"prompt": "b"}')
    stream = load_samples(path, on_bad_row="skip")

    assert [sample.prompt for sample in islice(stream, 1)] == ["a"]
    assert [sample.prompt for sample in stream] == ["a", "b"]
    assert [sample.prompt for sample in stream] == ["a", "b"]
    assert stream.skipped.count == 1


def test_next_goes_through_one_pass() -> None:
    stream = load_samples([{"prompt": "a"}, {"prompt": "b"}])

    assert next(stream).prompt == "a"
    assert next(stream).prompt == "b"
    with pytest.raises(StopIteration):
        next(stream)


def test_a_consumed_generator_says_that_it_is() -> None:
    stream = load_samples({"prompt": str(n)} for n in range(3))

    assert len(list(stream)) == 3
    with pytest.raises(DatasetError, match="cannot be read again"):
        list(stream)


def test_no_more_is_read_than_was_asked_for() -> None:
    taken: list[int] = []

    def generated() -> Iterator[dict[str, Any]]:
        for number in range(100):
            taken.append(number)
            yield {"prompt": str(number)}

    stream = load_samples(generated(), max_samples=2)

    assert taken == []
    assert len(list(stream)) == 2
    assert taken == [0, 1]


def test_zero_samples_are_no_samples() -> None:
    assert list(load_samples([{"prompt": "a"}], max_samples=0)) == []
    assert len(list(load_samples([{"prompt": "a"}], max_samples=10**30))) == 1


def test_skipped_rows_do_not_count_towards_the_maximum() -> None:
    stream = load_samples([{}, {"prompt": "a"}, {}, {"prompt": "b"}], 2, on_bad_row="skip")

    assert [sample.prompt for sample in stream] == ["a", "b"]
    assert stream.read == 4


def test_a_given_id_that_repeats_is_refused_with_both_places(tmp_path: Path) -> None:
    path = lines(tmp_path, '{"id": 7, "prompt": "a"}', "", '{"id": "7", "prompt": "b"}')

    with pytest.raises(BadRow) as caught:
        list(load_samples(path))

    assert caught.value.where == f"{path}:3"
    assert caught.value.message == f"the id '7' is already used at {path}:1"


@pytest.mark.parametrize(
    "item", [{"id": "\ud800x", "prompt": "a"}, Sample(id="\ud800", prompt="a")]
)
def test_an_id_that_no_file_could_hold_is_refused_with_its_place(item: Any) -> None:
    with pytest.raises(BadRow, match=r"item 1: the id '\\ud800.*contains a lone surrogate"):
        list(load_samples([{"id": "naïve", "prompt": "b"}, item]))


def test_an_id_is_not_used_up_by_a_row_that_was_skipped() -> None:
    stream = load_samples([{"id": 1}, {"id": 1, "prompt": "a"}], on_bad_row="skip")

    assert [sample.id for sample in stream] == ["1"]


def test_equal_rows_without_an_id_are_numbered_in_order() -> None:
    row = {"prompt": "a"}
    made = stable_id(row)

    stream = load_samples([row, {"prompt": "b"}, row, row])

    expected = [made, stable_id({"prompt": "b"}), f"{made}-2", f"{made}-3"]
    assert [sample.id for sample in stream] == expected
    assert [sample.id for sample in stream] == expected


def test_samples_in_memory_are_passed_on_as_copies_with_a_place() -> None:
    given = [Sample(prompt="a"), Sample(prompt="a"), Sample(id="x", prompt="b", index=9)]

    samples = list(load_samples(given))

    assert [sample.id for sample in samples] == [given[0].id, f"{given[0].id}-2", "x"]
    assert [sample.index for sample in samples] == [0, 1, 9]
    assert [sample.index for sample in given] == [None, None, 9]
    assert given[0].id == given[1].id


def test_a_sample_in_memory_with_a_repeated_id_is_refused() -> None:
    with pytest.raises(BadRow, match="item 1: the id 'x' is already used at item 0"):
        list(load_samples([Sample(id="x", prompt="a"), Sample(id="x", prompt="a")]))


def test_an_adapter_may_return_a_row_or_a_sample() -> None:
    def adapt(row: dict[str, Any]) -> Sample | dict[str, Any]:
        text = row.pop("utterance")
        return Sample(prompt=text) if text == "hi" else {"prompt": text, "answer": row["intent"]}

    rows = [{"utterance": "hi", "intent": "x"}, {"utterance": "bye", "intent": "y"}]

    first, second = load_samples(rows, adapter=adapt)

    assert (first.prompt, first.index, first.input) == ("hi", 0, rows[0])
    assert (second.prompt, second.ground_truth, second.input) == ("bye", "y", rows[1])
    assert "utterance" in rows[0]


def test_equal_samples_of_an_adapter_are_numbered() -> None:
    first, second = load_samples([{"x": 1}, {"x": 2}], adapter=lambda row: Sample(prompt="a"))

    assert second.id == f"{first.id}-2"


def test_an_adapter_that_fails_makes_a_bad_row_with_its_cause() -> None:
    with pytest.raises(BadRow, match="item 0: the adapter failed: KeyError: 'nope'") as caught:
        list(load_samples([{"x": 1}], adapter=lambda row: row["nope"]))

    assert isinstance(caught.value.__cause__, KeyError)


def test_an_adapter_that_returns_something_else_makes_a_bad_row() -> None:
    adapter: Any = lambda row: None  # noqa: E731  # one word shorter than a nested function

    with pytest.raises(BadRow, match="the adapter returned NoneType, not a Sample or a dict"):
        list(load_samples([{"x": 1}], adapter=adapter))


def test_an_interrupt_in_an_adapter_is_not_a_bad_row() -> None:
    def adapt(row: dict[str, Any]) -> Sample:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(load_samples([{"x": 1}], adapter=adapt, on_bad_row="skip"))


def test_the_account_of_skipped_rows_can_be_sent_to_another_process() -> None:
    stream = load_samples([{}], on_bad_row="skip")
    list(stream)

    assert str(pickle.loads(pickle.dumps(stream.skipped))) == str(stream.skipped)


_READ_ALL = """
import sys
from assay.datasets import load_samples
assert sum(1 for _ in load_samples(sys.argv[1])) == int(sys.argv[2])
"""
_ROW = '{"messages":[{"role":"user","content":"What is %d?"}],"answer":"%d"}'


@pytest.mark.parametrize("form", ["jsonl", "json"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, form: str) -> None:
    peaks = []
    for count in (15_000, 60_000):
        path = tmp_path / f"{count}.{form}"
        rows = (_ROW % (number, number) for number in range(count))
        path.write_text("[" + ",\n".join(rows) + "]" if form == "json" else "\n".join(rows))
        peaks.append(peak_of(_READ_ALL, path, count, folder=tmp_path))

    assert peaks[1] <= 1.2 * peaks[0]


def test_rollouts_of_one_sample_keep_their_id_when_repeats_are_asked_for() -> None:
    rows = [Sample(id="a", prompt="?"), Sample(id="a", prompt="?")]
    stream = load_samples(rows)

    with pytest.raises(BadRow, match="is already used"):
        list(stream)

    assert [sample.id for sample in stream.with_repeats()] == ["a", "a"]


def test_metadata_is_added_to_every_sample_but_changes_neither_ids_nor_rows() -> None:
    rows: list[dict[str, Any]] = [{"question": "1?"}, {"question": "2?", "messages": []}]
    own = Sample(prompt="q", metadata={"test": "its own"})
    plain = list(load_samples([*rows, own]))

    first, _, last = load_samples([*rows, own]).with_metadata({"test": "t", "seed": 0})

    assert first.metadata == {"test": "t", "seed": 0, "row_id": first.id}
    assert (first.id, first.input) == (plain[0].id, plain[0].input)
    assert last.metadata == {"test": "its own", "seed": 0, "row_id": own.id}
    assert own.metadata == {"test": "its own"}


@pytest.mark.parametrize(
    ("own", "limit", "left"), [(None, 2, 2), (1, 2, 1), (2, 1, 1), (None, 9, 3)]
)
def test_a_limited_stream_ends_after_the_smaller_limit(
    own: int | None, limit: int, left: int
) -> None:
    stream = load_samples([{"question": each} for each in "abc"], own)

    assert len(list(stream.with_limit(limit))) == left
    assert len(list(stream)) == (3 if own is None else own)


PHOTO = {"id": "1", "prompt": "a", "photo": b"\x89PNG\xff"}


@pytest.mark.parametrize("item", [PHOTO, Sample(id="1", prompt="a", input=PHOTO)])
def test_a_row_whose_result_could_not_be_recorded_is_refused_before_it_is_asked(item: Any) -> None:
    stream = load_samples([item, {"prompt": "b"}], on_bad_row="skip")

    assert [sample.prompt for sample in stream] == ["b"]
    assert "item 0: 'photo' cannot be written as JSON" in str(stream.skipped)


def test_an_adapter_may_replace_a_value_that_has_no_json_form() -> None:
    def replace_photo(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "photo": row["photo"].hex()}

    (sample,) = load_samples([PHOTO], adapter=replace_photo)
    (made,) = load_samples([PHOTO], adapter=lambda row: Sample(prompt=row["prompt"]))

    assert sample.input == replace_photo(PHOTO)
    assert made.input == {}
    assert Sample.from_json(sample.to_json()) == sample
