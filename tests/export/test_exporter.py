"""`export_samples`: what is written, what is left out and counted, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.errors import ConfigError
from assay.export import (
    EvaluationTexts,
    ExportOptions,
    ExportReport,
    Lengths,
    Selection,
    Split,
    export_samples,
)
from assay.types import Boundary, EvaluateResult, Failure, Message, ModelCall, Sample, Trajectory
from make import asked, called, said, sample
from openai_rules import check_row


def answer(name: str, words: str, score: float | None, **fields: Any) -> Sample:
    result = EvaluateResult(score=score)
    return sample(asked(f"question {name}"), said(words), id=name, score=result, **fields)


FAILED = answer(
    "broken", "half", 1.0, failure=Failure(boundary=Boundary.ENDPOINT, kind="X", message="gone")
)
RUN = [
    answer("a", "good", 1.0),
    answer("a", "bad", 0.0),
    answer("b", "fair", 0.5),
    answer("c", "unjudged", None),
    FAILED,
]


def export(
    samples: list[Sample], target: Path, form: str = "trl-sft", **asked_for: Any
) -> ExportReport:
    """What `export_samples` gives, once every sample is known to be accounted for."""
    known = {"split", "lengths", "overlap", "tokenise", "force"}
    options = ExportOptions(**{key: asked_for.pop(key) for key in known & asked_for.keys()})
    report = export_samples(
        samples, target, form, selection=Selection(**asked_for), options=options
    )
    assert report.read == report.used + report.left_out.total()
    return report


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_only_valid_answers_that_score_enough_are_written(tmp_path: Path) -> None:
    report = export(RUN, tmp_path / "x.jsonl", min_score=0.5)

    written = [row["completion"][0]["content"] for row in rows(tmp_path / "x.jsonl")]
    assert written == ["good", "fair"]
    assert report.left_out == {"score too low": 1, "not judged": 1, "failed": 1}
    assert report.files == {str(tmp_path / "x.jsonl"): 2}


def test_all_takes_unjudged_answers_and_never_a_failure(tmp_path: Path) -> None:
    report = export(RUN, tmp_path / "x.jsonl", valid_only=False)

    assert report.rows == 4
    assert report.left_out == {"failed": 1}


def test_nothing_to_write_leaves_no_file(tmp_path: Path) -> None:
    report = export(RUN, tmp_path / "x.jsonl", min_score=2.0)

    assert report.rows == 0
    assert list(tmp_path.iterdir()) == []


def test_the_best_of_each_group_is_kept(tmp_path: Path) -> None:
    report = export(RUN, tmp_path / "x.jsonl", best_of_group=True)

    written = [row["completion"][0]["content"] for row in rows(tmp_path / "x.jsonl")]
    assert written == ["good", "fair"]
    assert report.left_out["not the best of its group"] == 1


def test_a_pair_is_the_best_and_the_worst_answer_to_one_input(tmp_path: Path) -> None:
    between = answer("a", "between", 0.5)

    report = export([*RUN, between], tmp_path / "x.jsonl", "trl-preference")

    (row,) = rows(tmp_path / "x.jsonl")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("good", "bad")
    assert report.used == 2
    assert report.left_out["the only answer to its input"] == 1
    assert report.left_out["neither best nor worst of its group"] == 1


def test_a_margin_that_is_not_reached_gives_no_pair(tmp_path: Path) -> None:
    close = [answer("a", "x", 0.5), answer("a", "y", 0.4)]
    equal = [answer("b", "x", 0.5), answer("b", "y", 0.5)]

    report = export([*close, *equal], tmp_path / "x.jsonl", "trl-preference", margin=0.2)

    assert report.rows == 0
    assert report.left_out == {
        "no answer of its group is better by the margin": 2,
        "no answer of its group is better than another": 2,
    }


def test_the_better_answer_of_a_pair_must_be_good_enough(tmp_path: Path) -> None:
    poor = [answer("a", "x", 0.2), answer("a", "y", 0.1)]

    report = export(poor, tmp_path / "x.jsonl", "trl-preference", min_score=0.5)

    assert report.left_out == {"no answer of its group scores enough": 2}


def test_answers_to_different_scenes_are_never_paired(tmp_path: Path) -> None:
    scenes = [
        sample(asked("go"), asked(scene), said(scene), id="s", score=EvaluateResult(score=score))
        for scene, score in (("door", 1.0), ("wall", 0.0))
    ]

    again = [each.model_copy(update={"score": EvaluateResult(score=0.5)}) for each in scenes]

    assert export(scenes, tmp_path / "x.jsonl", "trl-preference").rows == 0
    assert export(scenes, tmp_path / "y.jsonl", best_of_group=True).rows == 1
    assert export([*scenes, *again], tmp_path / "z.jsonl", "trl-preference").rows == 2


def test_tests_of_one_session_are_not_mixed_though_their_ids_are_the_same(tmp_path: Path) -> None:
    rows_of_tests = [
        answer("a", "x", score, test=name) for name, score in (("t::one", 1.0), ("t::two", 0.0))
    ]

    assert export(rows_of_tests, tmp_path / "x.jsonl", "trl-preference").rows == 0


def test_kto_labels_both_sides_of_the_score(tmp_path: Path) -> None:
    export(RUN, tmp_path / "x.jsonl", "trl-kto", min_score=0.5)

    assert [row["label"] for row in rows(tmp_path / "x.jsonl")] == [True, False, True]


def test_each_prompt_is_written_once(tmp_path: Path) -> None:
    untried = [Sample(id="n", prompt="question a"), Sample(id="m", prompt="new")]

    report = export([*RUN, *untried], tmp_path / "x.jsonl", "trl-grpo")

    assert [row["id"] for row in rows(tmp_path / "x.jsonl")] == ["a", "b", "m"]
    assert report.left_out["the same prompt again"] == 2


def test_the_same_conversation_is_written_once_when_asked(tmp_path: Path) -> None:
    twice = [answer("a", "x", 1.0), answer("a", "x", 1.0), answer("a", "y", 1.0)]

    assert export(twice, tmp_path / "x.jsonl", dedupe=True).rows == 2
    assert export(twice, tmp_path / "y.jsonl").rows == 3


def test_a_limit_ends_the_export(tmp_path: Path) -> None:
    many = [answer(str(number), "x", 1.0) for number in range(10)]

    report = export(many, tmp_path / "x.jsonl", limit=3)
    grouped = export(many, tmp_path / "y.jsonl", limit=3, best_of_group=True)

    assert (report.rows, report.read) == (3, 3)
    assert (grouped.rows, grouped.left_out["beyond the limit"]) == (3, 7)
    assert "stopped at the limit of 3 rows" in report.notes


def test_a_split_keeps_the_answers_to_one_input_together(tmp_path: Path) -> None:
    many = [answer(str(number), words, 1.0) for number in range(40) for words in ("x", "y")]

    report = export(many, tmp_path / "d.jsonl", split=Split.parse("0.7"))

    train, test = (
        {row["prompt"][0]["content"] for row in rows(tmp_path / f"d.{part}.jsonl")}
        for part in ("train", "test")
    )
    assert train
    assert test
    assert not train & test
    assert sum(report.files.values()) == 80


def test_a_part_that_nothing_fell_into_is_told_of(tmp_path: Path) -> None:
    report = export([answer("a", "x", 1.0)], tmp_path / "d.jsonl", split=Split.parse("0.5"))

    assert len(list(tmp_path.iterdir())) == 1
    assert any("it has no samples" in note for note in report.notes)


def test_what_repeats_the_evaluation_set_is_left_out_and_named(tmp_path: Path) -> None:
    evaluated = EvaluationTexts([Sample(id="eval-7", prompt="Question A?")])

    report = export(RUN[:3], tmp_path / "x.jsonl", overlap=evaluated)

    assert report.left_out == {"overlaps the evaluation set: the same text": 2}
    assert report.examples[0].detail == "the same text as the prompt of eval-7"


def test_what_is_too_long_or_of_unknown_length_is_left_out(tmp_path: Path) -> None:
    def long(name: str, tokens: int) -> Sample:
        given = answer(name, "x", 1.0)
        assert given.trajectory is not None
        given.trajectory.calls = [
            ModelCall(prompt_ids=(1,) * tokens, completion_ids=(2,), message_index=1)
        ]
        return given

    samples = [long("a", 3), long("b", 30), answer("c", "x", 1.0)]

    report = export(samples, tmp_path / "x.jsonl", lengths=Lengths.from_usage(10))

    assert report.left_out == {"longer than 10 tokens": 1, "length unknown": 1}
    assert "lengths are as the model calls recorded them" in report.notes


def test_what_a_format_cannot_hold_is_left_out_with_the_reason(tmp_path: Path) -> None:
    block = {"type": "image_url", "image_url": {"url": "u"}}
    image = Message.model_validate({"role": "user", "content": [block]})
    shown = sample(image, said("a cat"), id="i", score=EvaluateResult(score=1.0))

    report = export([shown], tmp_path / "x.jsonl")

    assert report.left_out == {"a `image_url` block is not text": 1}


def test_what_a_format_has_no_place_for_is_counted_by_kind(tmp_path: Path) -> None:
    thought = Message(role="assistant", content="x", reasoning="hm", model="m")
    given = sample(asked("?"), thought, score=EvaluateResult(score=1.0))

    report = export([given, given], tmp_path / "x.jsonl", "openai-sft")

    assert set(report.lost.values()) == {2}
    assert {kind.split(":")[0] for kind in report.lost} == {
        "messages[].reasoning",
        "messages[].model",
    }


def test_no_secret_of_a_recorded_call_reaches_a_training_file(tmp_path: Path) -> None:
    given = answer("a", "x", 1.0, metadata={"note": "s3cret"}, input={"key": "s3cret"})
    assert given.trajectory is not None
    given.trajectory.calls = [ModelCall(message_index=1, sampling={"key": "s3cret"})]
    given.trajectory.messages[1] = given.trajectory.messages[1].model_copy(
        update={"details": {"key": "s3cret"}, "metadata": {"key": "s3cret"}}
    )

    for form in ("trl-sft", "trl-grpo", "openai-sft", "openai-rft", "fireworks-rft", "sharegpt"):
        export([given], tmp_path / f"{form}.jsonl", form)
        assert "s3cret" not in (tmp_path / f"{form}.jsonl").read_text()


def test_a_grader_is_written_beside_the_prompts(tmp_path: Path) -> None:
    report = export([answer("a", "x", 1.0)], tmp_path / "rft.jsonl", "openai-rft")

    check_row(rows(tmp_path / "rft.jsonl")[0], "rft")
    assert json.loads((tmp_path / "rft.grader.json").read_text())["type"] == "python"
    assert any("requires at least 10 rows" in note for note in report.notes)


def test_recorded_tokens_may_become_several_rows(tmp_path: Path) -> None:
    def tokenise(given: Sample) -> list[Sample]:
        parts = ([1, 2, 3], [4, 5])
        return [
            given.model_copy(update={"tokens": part, "loss_mask": [0.0] + [1.0] * (len(part) - 1)})
            for part in parts
        ]

    report = export(
        [answer("a", "x", 1.0)], tmp_path / "x.jsonl", "trl-sft-tokens", tokenise=tokenise
    )

    assert (report.rows, report.used) == (2, 1)
    assert rows(tmp_path / "x.jsonl")[1] == {"input_ids": [4, 5], "labels": [-100, 5]}


def test_tokens_that_a_sample_already_has_are_taken(tmp_path: Path) -> None:
    ready = answer("a", "x", 1.0, tokens=[1, 2], loss_mask=[0.0, 1.0])
    bare = answer("b", "x", 1.0)

    report = export([ready, bare], tmp_path / "x.jsonl", "trl-sft-tokens")

    assert report.rows == 1
    assert report.left_out == {"the sample has 0 tokens and 0 mask values": 1}


@pytest.mark.parametrize(
    ("form", "asked_for", "problem"),
    [
        ("trl-kto", {}, "--min-score"),
        (
            "trl-preference",
            {"best_of_group": True},
            "cannot be combined with the best answer of each group",
        ),
        ("trl-sft", {"margin": 0.5}, "does not write pairs"),
        ("nothing", {}, "unknown format 'nothing'"),
    ],
)
def test_a_request_that_means_nothing_is_refused_before_a_sample_is_read(
    tmp_path: Path, form: str, asked_for: dict[str, Any], problem: str
) -> None:
    unread = map(pytest.fail, ["a sample was read"])

    with pytest.raises(ConfigError, match=problem):
        export_samples(unread, tmp_path / "x.jsonl", form, selection=Selection(**asked_for))


def test_a_file_that_is_there_is_refused_before_a_sample_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.test.jsonl").write_text("")

    with pytest.raises(ConfigError, match="the file already exists"):
        export(RUN, tmp_path / "x.jsonl", split=Split.parse("0.9"))

    assert export(RUN, tmp_path / "x.jsonl", split=Split.parse("0.9"), force=True).rows


def test_an_interruption_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> Any:
        yield RUN[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_samples(interrupted(), tmp_path / "x.jsonl", "trl-sft")

    assert list(tmp_path.iterdir()) == []


def test_a_format_that_no_released_package_reads_is_exported_with_a_note(tmp_path: Path) -> None:
    call = ModelCall(prompt_ids=(1,), completion_ids=(2,), logprobs=(-0.5,))
    recorded = Trajectory(messages=[asked("?"), said("x")], calls=[call])
    given = Sample(prompt="?", trajectory=recorded, score=EvaluateResult(score=1.0))

    report = export([given], tmp_path / "a.jsonl", "openenv")

    assert report.rows == 1
    assert any("has no reader for these traces" in note for note in report.notes)


def test_parquet_rows_are_read_back_by_datasets(tmp_path: Path) -> None:
    from datasets import load_dataset

    tooled = sample(
        asked("?"),
        said(None, called("f", "1", a=1), called("g", "2", b="x")),
        Message(role="tool", content="1", tool_call_id="1"),
        Message(role="tool", content="2", tool_call_id="2"),
        said("ok"),
        score=EvaluateResult(score=1.0),
    )
    for form in ("verl", "verl-sft", "skyrl"):
        export([*RUN[:3], tooled], tmp_path / f"{form}.parquet", form)

    def loaded(form: str) -> Any:
        path = str(tmp_path / f"{form}.parquet")
        return load_dataset(
            "parquet", data_files=path, split="train", cache_dir=str(tmp_path / "cache")
        )

    assert loaded("verl")[0]["prompt"] == [{"role": "user", "content": "question a"}]
    assert loaded("skyrl")[0]["reward_spec"] == {"method": "rule", "ground_truth": None}
    calls = loaded("verl-sft")[3]["messages"][1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
    ]


@pytest.mark.parametrize("form", ["sample", "atif", "eval", "vertex", "sharegpt", "trl-sft"])
def test_jsonl_rows_are_read_back_by_datasets(tmp_path: Path, form: str) -> None:
    from datasets import load_dataset

    path = tmp_path / "x.jsonl"
    report = export(RUN[:3], path, form)

    loaded = load_dataset(
        "json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache")
    )

    assert len(loaded) == report.rows == 3


def test_an_atif_row_is_valid_to_the_atif_package(tmp_path: Path) -> None:
    import atif

    export(RUN[:3], tmp_path / "x.jsonl", "atif")

    for row in rows(tmp_path / "x.jsonl"):
        assert atif.Trajectory.model_validate(row).steps


def test_memory_does_not_grow_with_the_number_of_samples(tmp_path: Path) -> None:
    import tracemalloc

    def many(count: int) -> Any:
        for number in range(count):
            yield answer(str(number % 50), "x" * 2000, float(number))

    def peak(count: int) -> int:
        tracemalloc.start()
        export_samples(
            many(count),
            tmp_path / f"{count}.jsonl",
            "trl-sft",
            selection=Selection(best_of_group=True),
        )
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(50)
    assert peak(1500) < peak(300) + 400_000


def test_a_trajectory_made_by_hand_without_calls_is_exported(tmp_path: Path) -> None:
    made = Sample(
        id="m",
        prompt="?",
        trajectory=Trajectory(messages=[asked("?"), said("x")]),
        score=EvaluateResult(score=1.0),
    )

    assert export([made], tmp_path / "x.jsonl").rows == 1
