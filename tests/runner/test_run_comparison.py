"""The comparison of two recorded runs, as commands and pages show it."""

import json
from pathlib import Path
from typing import Any

import pytest

from assay.runner import RunComparison, build_run_comparison, find_config_difference
from assay.store import RunSpec, Store
from assay.types import EvaluateResult, Sample
from recorded_runs import conversation, record, samples


def spec(config: dict[str, Any], dataset: str = "rows", fingerprint: str | None = "1") -> RunSpec:
    return RunSpec(
        id="r",
        name="run",
        config=config,
        config_fingerprint="f",
        dataset=dataset,
        dataset_fingerprint=fingerprint,
    )


def compared(store: Path, a: str, b: str, **options: Any) -> RunComparison:
    with Store.open(store) as opened:
        return build_run_comparison(opened.run(a), opened.run(b), **options)


def test_the_text_of_a_prompt_is_compared_line_by_line() -> None:
    old = {"seed": 1, "prompt": {"name": "a", "text": "Be brief.\n  Answer: {question}"}}
    new = {"seed": 1, "prompt": {"name": "b", "text": "Be brief.\n  Think: {question}"}}

    found = find_config_difference(spec(old), spec(new))

    assert found.keys == ("prompt",)
    assert found.settings == ("prompt.name: 'a' -> 'b'",)
    assert found.prompt == (
        "@@ -1,2 +1,2 @@",
        " Be brief.",
        "-  Answer: {question}",
        "+  Think: {question}",
    )
    assert found.plain()["prompt_diff"] == list(found.prompt)


def test_the_fingerprint_of_a_prompt_is_not_listed_beside_its_diff() -> None:
    configs = [
        {"prompt": {"text": text}, "prepare_messages": f"assay.PromptTemplate {text}"}
        for text in ("old", "new")
    ]

    found = find_config_difference(*map(spec, configs))
    other = find_config_difference(*(spec({"prepare_messages": name}) for name in ("f 1", "f 2")))

    assert found.keys == ("prepare_messages", "prompt")
    assert found.settings == ()
    assert other.settings == ("prepare_messages: 'f 1' -> 'f 2'",)


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (("other", "2"), "rows -> other"),
        (("rows", "2"), "rows has changed between the runs"),
        (("rows", None), None),
    ],
)
def test_another_dataset_is_named(second: tuple[str, str | None], words: str | None) -> None:
    assert find_config_difference(spec({}), spec({}, *second)).dataset == words


def test_answers_of_changed_samples_come_with_the_reason_of_the_worse(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    good, bad = {"score": 1.0}, {"score": 0.0, "reason": "not Paris"}
    a = record(
        store,
        conversation("fell", "Paris", metadata=good, ground_truth="Paris"),
        conversation("same", metadata=good),
        conversation("gone", metadata=good),
    )
    b = record(
        store,
        conversation("fell", "Lyon", metadata=bad, ground_truth="Paris"),
        conversation("same", metadata=good),
    )

    found = compared(store, a, b)

    assert list(found.answers) == ["fell"]
    answers = found.answers["fell"]
    assert (answers.old, answers.new) == ("Paris", "Lyon")
    assert (answers.expected, answers.reason) == ("Paris", "not Paris")
    assert found.comparison.missing_in_b.count == 1
    assert found.comparison.labels["fell"] == "fell?"


def test_of_several_repeats_those_that_show_the_change_are_chosen(tmp_path: Path) -> None:
    def pass_second(sample: Sample) -> EvaluateResult:
        return EvaluateResult(score=float(sample.rollout_id == "a#1"), reason=sample.rollout_id)

    store = tmp_path / "a.db"
    a = record(store, *samples(a=1.0), repeats=2)
    b = record(store, *samples(a=1.0), repeats=2, score_fn=pass_second)

    answers = compared(store, a, b).answers["a"]

    assert (answers.old_repeat, answers.new_repeat, answers.reason) == (0, 0, "a#0")
    assert (answers.old_scores, answers.new_scores) == ((1.0, 1.0), (0.0, 1.0))


def test_plain_values_are_json_and_the_lists_are_bounded(tmp_path: Path) -> None:
    store = tmp_path / "a.db"
    names = ("s1", "s2", "s3")
    a = record(store, *samples(**dict.fromkeys(names, 1.0)))
    b = record(store, *samples(**dict.fromkeys(names, 0.0)))

    plain = json.loads(json.dumps(compared(store, a, b, limit=2).plain(), allow_nan=False))

    assert (plain["a"], plain["b"], plain["losses"]) == (a, b, 3)
    assert [run["id"] for run in plain["runs"]] == [a, b]
    assert len(plain["regressions"]) == len(plain["answers"]) == 2
    assert plain["conclusion"] == "too few to tell"
