"""Row layouts: which is recognised, what it gives, and what it refuses."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.datasets.layouts import is_generated_id, read_row
from assay.errors import BadRow
from assay.formats import to_eval_record
from assay.types import EvaluateResult, Message, Metric, Sample, Status, Trajectory, stable_id
from make import asked as user
from make import said, sample

ASKED = [{"role": "user", "content": "1+1?"}]
SAID = [{"role": "assistant", "content": "2"}]
WRONG = [{"role": "assistant", "content": "3"}]


def refused(row: dict[str, Any]) -> BadRow:
    with pytest.raises(BadRow) as caught:
        read_row(row, index=0)
    return caught.value


def asked(sample: Sample) -> object:
    if isinstance(sample.prompt, str):
        return sample.prompt
    return [{"role": message.role, "content": message.content} for message in sample.prompt]


@pytest.mark.parametrize(
    ("row", "prompt", "ground_truth"),
    [
        ({"messages": ASKED, "ground_truth": {"n": 2}}, ASKED, {"n": 2}),
        ({"messages": ASKED + SAID}, ASKED + SAID, None),
        ({"messages": ASKED, "prompt": "text", "answer": "2"}, ASKED, "2"),
        ({"messages": None, "prompt": "text", "answer": "2"}, "text", "2"),
        ({"messages": [], "prompt": "text"}, "text", None),
        ({"prompt": "1+1?", "ground_truth": 2}, "1+1?", 2),
        ({"prompt": ASKED, "solution": "2"}, ASKED, "2"),
        ({"prompt": "1+1?"}, "1+1?", None),
        ({"question": "1+1?", "answer": "2"}, "1+1?", "2"),
        ({"question": "1+1?", "context": "sums", "target": 0}, "1+1?", 0),
        ({"input": "1+1?", "target": "2"}, "1+1?", "2"),
        ({"input": "1+1?", "expected": ["2", "two"]}, "1+1?", ["2", "two"]),
        ({"input": ASKED, "ideal": "2"}, ASKED, "2"),
        ({"input": "1+1?", "ideal": ["2", "two"]}, "1+1?", ["2", "two"]),
        ({"problem": "1+1?", "solution": "as", "answer": "2"}, "1+1?", "2"),
        ({"query": "1+1?", "expected_output": "2"}, "1+1?", "2"),
        ({"prompt": "1+1?", "completion": "2"}, "1+1?", "2"),
        ({"prompt": ASKED, "completion": SAID}, ASKED, SAID),
        ({"prompt": "1+1?", "completion": "2", "label": True}, "1+1?", "2"),
        ({"prompt": "1+1?", "completion": "3", "label": False}, "1+1?", None),
        ({"prompt": "1+1?", "completion": "so: 2", "answer": "2"}, "1+1?", "2"),
        ({"prompt": "1+1?", "chosen": "2", "rejected": "3"}, "1+1?", "2"),
        ({"prompt": ASKED, "chosen": SAID, "rejected": WRONG}, ASKED, SAID),
        ({"chosen": ASKED + SAID, "rejected": ASKED + WRONG}, ASKED, SAID),
        ({"instruction": "Add.", "input": "1 1", "output": "2"}, "Add.\n\n1 1", "2"),
        ({"instruction": "Add 1 1.", "input": "", "output": "2"}, "Add 1 1.", "2"),
        ({"id": "a", "input": {"x": 1}, "question": "x?", "target": "1"}, "x?", "1"),
    ],
)
def test_known_layouts_need_no_configuration(
    row: dict[str, Any], prompt: object, ground_truth: object
) -> None:
    sample = read_row(row, index=7)

    assert asked(sample) == prompt
    assert sample.ground_truth == ground_truth
    assert sample.input == row
    assert sample.index == 7
    assert sample.status is Status.PENDING


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"id": "a", "task_id": "b"}, "a"),
        ({"id": 0}, "0"),
        ({"row_id": "r"}, "r"),
        ({"task_id": "HumanEval/0"}, "HumanEval/0"),
        ({"sample_id": 12}, "12"),
        ({"uid": "u"}, "u"),
        ({"id": None, "uid": "u"}, "u"),
    ],
)
def test_the_rows_own_id_is_kept_as_text(row: dict[str, Any], expected: str) -> None:
    sample = read_row({"prompt": "a", **row}, index=0)

    assert sample.id == expected
    assert not is_generated_id(sample)


def test_a_row_without_an_id_is_named_by_its_content() -> None:
    row = {"prompt": "a", "answer": [1, None, "é"]}

    sample = read_row(row, index=0)

    assert sample.id == stable_id(row)
    assert is_generated_id(sample)


@pytest.mark.parametrize("own", ["", True, 1.5, ["a"], {"$oid": "1"}])
def test_an_id_that_is_neither_text_nor_a_whole_number_is_refused(own: object) -> None:
    assert "which is not a valid id" in refused({"prompt": "a", "id": own}).message


def test_an_unknown_layout_names_its_columns_and_the_way_out() -> None:
    problem = refused({"utterance": "hi", "intent": "greet"})

    assert problem.message == "no known layout has these columns: 'utterance', 'intent'"
    assert "adapter=" in str(problem.hint)
    assert "--prompt FILE, whose text has columns in braces, such as {utterance}" in str(
        problem.hint
    )


def test_an_unknown_layout_of_many_columns_names_the_first() -> None:
    assert refused({f"c{n}": n for n in range(15)}).message.endswith("'c11' and 3 more")


def test_a_row_without_columns_is_refused() -> None:
    assert refused({}).message == "no known layout has these columns: none at all"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"input": []}, "the prompt is empty"),
        ({"prompt": 7}, "the prompt is int, not text or a list of messages"),
        ({"messages": {"role": "user"}}, "the prompt is dict, not text or a list of messages"),
        ({"instruction": ["a"]}, "`instruction` and `input` must both be text"),
        ({"chosen": "a", "rejected": "b"}, "no known layout has these columns: "),
        ({"messages": [{"content": "hi"}]}, "the row does not fit a sample: prompt."),
        ({"messages": "[]"}, "`messages` is text, not a list of messages"),
        ({"messages": "[]", "input_metadata": {}}, "`messages` is text, not a list of messages"),
        ({"id": "a", "input": {"q": "x"}, "ground_truth": 1}, "the prompt is dict, not text"),
        ({"messages": ["hi"]}, "the row does not fit a sample: prompt."),
        ({"prompt": "a", "x": {1, object}}, "the row contains a value without a JSON form"),
    ],
)
def test_what_cannot_be_asked_is_refused(row: dict[str, Any], message: str) -> None:
    assert refused(row).message.startswith(message)


def test_a_message_that_does_not_fit_is_placed() -> None:
    problem = refused({"messages": [*ASKED, {"role": "user", "content": 7}]})

    assert "prompt" in problem.message
    assert ".1.content" in problem.message


def test_an_eval_protocol_row_loads_with_score_metadata_and_everything_else() -> None:
    row = {
        "messages": ASKED + SAID,
        "tools": [{"type": "function"}],
        "input_metadata": {"row_id": "bold-fox-1", "completion_params": {"model": "m"}},
        "rollout_status": {"code": 100, "message": "done", "details": []},
        "ground_truth": "2",
        "evaluation_result": {
            "score": 1.0,
            "is_score_valid": True,
            "reason": "right",
            "metrics": {"exact": {"score": 1.0, "is_score_valid": True, "reason": "", "data": {}}},
            "step_outputs": None,
            "agg_score": 0.5,
        },
        "execution_metadata": {"rollout_id": "r-1", "usage": None},
        "created_at": "2025-11-15T20:00:00",
        "eval_metadata": None,
        "pid": 17,
        "index": "not ours",
        "new_field": 1,
    }

    sample = read_row(row, index=3)

    assert sample.id == "bold-fox-1"
    assert sample.index == 3
    assert sample.response == "2"
    assert sample.ground_truth == "2"
    assert sample.reward == 1.0
    assert sample.metadata == row["input_metadata"]
    assert sample.input == row
    assert sample.__pydantic_extra__ == {
        key: row[key]
        for key in (
            "tools",
            "rollout_status",
            "execution_metadata",
            "created_at",
            "eval_metadata",
            "pid",
            "new_field",
        )
    }
    assert Sample.from_json(sample.to_json()) == sample


def test_an_eval_protocol_row_that_was_not_run_yet_loads() -> None:
    sample = read_row({"messages": ASKED, "input_metadata": None, "pid": None}, index=0)

    assert sample.score is None
    assert sample.metadata == {}


_MESSAGES = st.lists(st.builds(Message, role=st.just("user"), content=st.text("ab")), min_size=1)
_SAMPLES = st.builds(
    Sample,
    id=st.sampled_from(["", "", "mine"]),
    input=st.sampled_from([{}, {"prompt": "p"}, {"question": "q", "answer": 1}]),
    prompt=st.sampled_from(["a", "b"]) | _MESSAGES,
    ground_truth=st.none() | st.text("ab"),
    trajectory=st.none() | st.builds(Trajectory, messages=_MESSAGES),
    score=st.none() | st.just(EvaluateResult(metrics=(Metric("m", 0.5),))),
    status=st.sampled_from(Status),
    index=st.just(4),
    metadata=st.sampled_from([{}, {"a": 1}]),
    note=st.just("an unknown field"),
)


@settings(deadline=None)
@given(_SAMPLES)
def test_a_written_sample_loads_as_that_sample(sample: Sample) -> None:
    loaded = read_row(sample.to_dict(), index=9)

    if sample.id == "mine" and not (sample.input or sample.trajectory or sample.score):
        # Nothing tells it from a row of a dataset, so the row is kept as the input.
        loaded.input, loaded.index = {}, 4
        loaded.status, loaded.metadata = sample.status, sample.metadata
        assert loaded.id == sample.id
        assert loaded.prompt == sample.prompt
        assert loaded.ground_truth == sample.ground_truth
    else:
        assert loaded == sample


def test_a_written_sample_that_asks_nothing_itself_loads_as_that_sample() -> None:
    sample = Sample(input={"seed": 3}, index=0)

    assert read_row(sample.to_dict(), index=0) == sample
    assert read_row(Sample(input={"seed": 3}).to_dict(), index=0) == sample


def test_a_written_sample_without_a_place_gets_one() -> None:
    assert read_row(Sample(prompt="a").to_dict(), index=9).index == 9


def test_what_an_adapter_made_of_a_row_leaves_the_input_as_it_came() -> None:
    original = {"utterance": "hi", "intent": "greet"}

    sample = read_row({"prompt": "hi", "answer": "greet"}, index=0, original=original)

    assert sample.input == original
    assert sample.id == stable_id(original)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": ASKED, "reward_model": {"style": "rule", "ground_truth": "2"}},
        {"prompt": ASKED, "reward_spec": {"method": "rule", "ground_truth": "2"}},
        {"messages": ASKED, "reference_answer": "2"},
    ],
)
def test_the_ground_truth_of_a_row_made_for_a_trainer_is_found(row: dict[str, Any]) -> None:
    assert read_row(row, index=0).ground_truth == "2"


def test_a_written_sample_with_tokens_and_an_id_of_its_own_comes_back() -> None:
    written = Sample(id="mine", prompt="?", tokens=[1, 2], loss_mask=[0.0, 1.0])

    assert read_row(written.to_dict(), index=0) == written.model_copy(update={"index": 0})


def test_a_dataset_with_a_column_named_like_a_field_of_ours_is_still_a_dataset() -> None:
    row = {"id": "mine", "prompt": "?", "tokens": 7, "level": "hard"}

    assert read_row(row, index=0).input == row


def test_an_evaluation_record_is_read_with_its_own_response() -> None:
    talk = sample(user("Capital of France?"), said("Lyon, or rather:"), said("Paris."), id="ses_1")
    record = to_eval_record(talk).value
    record["response"]["candidates"][0]["content"]["parts"][0]["text"] = "Paris, in fact."

    found = read_row(record, index=7)

    assert (found.id, found.index, found.response) == ("ses_1", 7, "Paris, in fact.")
    assert found.messages[0].text == "Capital of France?"


def test_a_damaged_evaluation_record_is_a_bad_row() -> None:
    record = {**to_eval_record(sample(user("q"), said("a"))).value, "request": 5}

    assert refused(record).message.startswith("the evaluation record cannot be read: request")
