"""`read_prompt`: which files are prompts, what they are filled with, and what they refuse."""

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import PromptTemplate, load_samples, read_prompt
from assay.errors import BadRow, ConfigError
from assay.types import Message, Sample, build_label, stable_id


def row(**fields: Any) -> Sample:
    return Sample(id="q1", prompt="asked", input=fields)


def fill(text: str, **fields: Any) -> str:
    (message,) = PromptTemplate(text)(row(**fields))
    assert message.role == "user"
    return message.text


def test_a_text_file_is_one_user_message(tmp_path: Path) -> None:
    (tmp_path / "terse.txt").write_text("Answer briefly.\n\nQ: {question}\nA:\n")

    (message,) = read_prompt(tmp_path / "terse.txt")(row(question="1+1?"))

    assert (message.role, message.text) == ("user", "Answer briefly.\n\nQ: 1+1?\nA:")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{{a}}}", "{1}"),
        ('{{"x": {a}}}', '{"x": 1}'),
        ("{a}{a}", "11"),
        ("{ a }", "1"),
        ("{b}", "{a} {{ {0} %s $x"),
        ("{c}", '["é", null]'),
        ("[{d}] {a}", "[] 1"),
        ("{e} {f}", '2026-01-02 ["1.50"]'),
        ("{two words}", "yes"),
    ],
)
def test_values_are_inserted_as_they_are(text: str, expected: str) -> None:
    fields = {"a": 1, "b": "{a} {{ {0} %s $x", "c": ["é", None], "d": None, "two words": "yes"}
    fields |= {"e": date(2026, 1, 2), "f": [Decimal("1.50")]}

    assert fill(text, **fields) == expected


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "chat.json",
            '[{"role": "system", "content": "Say {{ok}}."},\n'
            ' {"role": "user", "content": "{question}"}]',
        ),
        (
            "chat.yaml",
            "- role: system\n  content: Say {{ok}}.\n- role: user\n  content: '{question}'\n",
        ),
    ],
)
def test_a_list_of_messages_keeps_its_roles(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)

    messages = read_prompt(tmp_path / name)(row(question="1+1?"))

    assert [(each.role, each.text) for each in messages] == [
        ("system", "Say {ok}."),
        ("user", "1+1?"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("p.txt", "one {a}\ntwo { b", "p.txt:2: the brace '{' after 'two ' is not part"),
        ("p.txt", "{a} }", "p.txt:1: the brace '}' after '{a} '"),
        ("p.txt", "Always the same.", "p.txt: the prompt has no placeholder"),
        ("p.txt", "", "p.txt: the prompt has no placeholder"),
        ("p.txt", "x\n{ answer }", "p.txt:2: the placeholder {answer} is the expected answer"),
        ("p.json", "{}", "p.json:1:1: the file is not a list of messages"),
        ("p.json", "[]", "p.json:1:1: the file is not a list of messages"),
        ("p.json", '[{"role": "user"}]', "p.json:1:2: the file is not a list of messages"),
        ("p.yaml", "- role: user\n  content: 3\n", "p.yaml:1:3: the file is not a list"),
        ("p.yaml", "- {role: a, content: '{a', }", "p.yaml:1: the brace '{' after ''"),
        ("p.yaml", "- role: [\n", "p.yaml:"),
    ],
)
def test_an_invalid_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(text)

    with pytest.raises(ConfigError) as refused:
        read_prompt(name)

    assert str(refused.value).startswith(message)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.txt"):
        read_prompt(tmp_path / "none.txt")


def test_a_missing_field_names_the_line_and_the_fields_of_the_row() -> None:
    template = PromptTemplate("Hello.\nQ: {quesion}", name="p.txt")
    rows = [{"id": "q7", "question": "1+1?", "topic": "sums", "answer": "2"}]

    with pytest.raises(ConfigError) as refused:
        list(template.check_samples(load_samples(rows)))

    assert str(refused.value) == (
        "p.txt:2: the placeholder {quesion} is not a field of sample 'q7', row 1 of the "
        "dataset\n"
        "  hint: the fields are: id, question, topic; write {{ and }} for literal braces"
    )


def test_samples_without_a_row_have_their_prompt() -> None:
    (message,) = PromptTemplate("Q: {prompt}")(Sample(prompt="1+1?"))

    assert message.text == "Q: 1+1?"


def test_the_columns_of_a_prompt_are_enough_for_a_row() -> None:
    template = PromptTemplate("Write about {topic} in a {tone} tone.\n")
    row = {"topic": "bread", "tone": "funny", "expected": "crumbs"}

    (sample,) = load_samples([row]).with_prompt(template)

    assert sample.prompt == build_label(sample) == "Write about bread in a funny tone."
    assert sample.messages == template(sample)
    assert (sample.input, sample.ground_truth) == (row, "crumbs")
    # Of the row alone: the runs of two prompts are paired by sample.
    assert sample.id == stable_id(row)


def test_the_prompt_of_a_row_keeps_the_roles_of_several_messages() -> None:
    template = PromptTemplate.from_messages(
        '[{"role": "system", "content": "Be {tone}."}, {"role": "user", "content": "{topic}"}]'
    )

    (sample,) = load_samples([{"topic": "bread", "tone": "funny"}]).with_prompt(template)

    assert sample.messages == [
        Message(role="system", content="Be funny."),
        Message(role="user", content="bread"),
    ]
    assert build_label(sample) == "bread"


@pytest.mark.parametrize("given", ["", 3, {"topic": "bread"}])
def test_a_question_that_is_no_text_may_be_a_field_of_the_prompt(given: object) -> None:
    rows = [{"input": given}]

    (sample,) = load_samples(rows).with_prompt(PromptTemplate("Read: {input}"))

    assert str(sample.prompt).startswith("Read: ")
    with pytest.raises(BadRow, match="the prompt is"):
        list(load_samples(rows))


def test_a_question_of_its_own_stays_the_prompt_of_a_row() -> None:
    rows = [{"question": "1+1?", "topic": "sums"}]

    (sample,) = load_samples(rows).with_prompt(PromptTemplate("{topic}: {question}"))

    assert sample.prompt == "1+1?"


def test_a_row_without_a_column_of_the_prompt_is_refused_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"topic": "sea", "tone": "sad"}\n{"topic": "bread"}\n')
    template = PromptTemplate("{topic}, {tone}", name="p.txt")

    with pytest.raises(BadRow) as refused:
        list(load_samples(file).with_prompt(template))

    assert str(refused.value) == (
        f"{file}:2: the row has no column 'tone', a placeholder of p.txt\n"
        "  hint: the columns are: 'topic'; add the column to the row, or remove {tone} from the "
        "prompt"
    )
    skipping = load_samples(file, on_bad_row="skip").with_prompt(template)
    assert (len(list(skipping)), skipping.skipped.count) == (1, 1)


def test_a_prompt_that_stays_empty_is_refused() -> None:
    with pytest.raises(BadRow, match="the prompt is empty"):
        list(load_samples([{"topic": ""}]).with_prompt(PromptTemplate("{topic}")))


def test_a_function_that_names_no_fields_reads_no_other_rows() -> None:
    stream = load_samples([{"topic": "bread"}])

    assert stream.with_prompt(lambda sample: sample.messages) is stream
    assert stream.with_prompt(None) is stream


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("{output}", [{"instruction": "Add.", "output": "2"}]),
        ("{prompt} {completion}", [{"prompt": "1+1?", "completion": "2"}]),
        ("{solved}", [{"question": q, "solved": a, "answer": a} for q, a in ("a1", "b2")]),
    ],
)
def test_a_field_with_the_expected_answer_is_refused(text: str, rows: list[Any]) -> None:
    with pytest.raises(ConfigError, match="is the expected answer"):
        list(PromptTemplate(text).check_samples(load_samples(rows)))


def test_an_option_that_is_right_in_some_rows_is_not_the_answer() -> None:
    rows = [
        {"question": "a", "first": "1", "second": "2", "answer": "1"},
        {"question": "b", "first": "1", "second": "2", "answer": "2"},
    ]

    checked = PromptTemplate("{question} {first} {second}").check_samples(load_samples(rows))

    assert len(list(checked)) == 2


def test_the_identity_is_that_of_the_messages() -> None:
    one, same = PromptTemplate("{a} b\n", name="x"), PromptTemplate("{a} b", name="y")

    assert one.identity == same.identity
    assert one.identity != PromptTemplate("{a} c").identity
    assert (
        one.identity
        == PromptTemplate.from_messages('[{"role": "user", "content": "{a} b"}]').identity
    )


def test_a_long_text_is_recorded_by_its_digest() -> None:
    short = PromptTemplate("{a}", name="prompts/short.txt")
    long = PromptTemplate("{a}" + "x" * 20_000, name="long.txt")

    assert short.describe() == {"name": "short.txt", "text": "{a}"}
    assert long.describe().keys() == {"name", "sha256"}
