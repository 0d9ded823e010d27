"""Options of eval-protocol's decorator: each is mapped or refused."""

from pathlib import Path
from typing import Any

import pytest

from assay import evaluation_test
from assay.errors import ConfigError, DatasetError
from assay.pytest_plugin.decorator import _EVAL_PROTOCOL_OPTIONS, EvalOptions, eval_options_of
from assay.pytest_plugin.eval_protocol import (
    AgentRolloutProcessor,
    BackoffConfig,
    EvaluationThreshold,
    ExceptionHandlerConfig,
    MCPGymRolloutProcessor,
    NoOpRolloutProcessor,
    RolloutProcessor,
    SingleTurnRolloutProcessor,
    translate_options,
)
from assay.pytest_plugin.eval_protocol.processors import RolloutProcessorConfig, Tasks
from assay.types import Endpoint, Message, Sample
from make import asked as question
from make import said

ROWS = [[Sample(prompt=[question(f"{n}?")]) for n in range(3)]]
NO_OP: dict[str, Any] = {"rollout_processor": NoOpRolloutProcessor(), "input_rows": ROWS}
MODEL: dict[str, Any] = {"completion_params": [{"model": "mock:fixed"}], "input_rows": ROWS}


def handler(**settings: Any) -> ExceptionHandlerConfig:
    return ExceptionHandlerConfig(backoff_config=BackoffConfig(**settings))


def translate(**options: Any) -> dict[str, Any]:
    return translate_options(options, "")


def rows(**options: Any) -> list[Sample]:
    return list(translate(rollout_processor=NoOpRolloutProcessor(), **options)["samples"])


def decorated(**options: Any) -> EvalOptions:
    @evaluation_test(**options)
    def test(row: Sample) -> Sample:
        return row

    found = eval_options_of(test)
    assert found is not None
    return found


class Custom(RolloutProcessor):
    def __call__(self, rows: list[Sample], config: RolloutProcessorConfig) -> Tasks:
        return []


def test_the_decorator_takes_the_options_of_eval_protocol() -> None:
    asked = decorated(
        **MODEL, num_runs=4, passed_threshold=0.8, max_concurrent_rollouts=16, mode="groupwise"
    )

    assert isinstance(asked.endpoint, Endpoint)
    assert (asked.repeats, asked.threshold, asked.concurrency) == (4, 0.8, 16)
    assert (asked.groupwise, asked.batch) == (True, False)
    assert [sample.messages[0].text for sample in asked.samples] == ["0?", "1?", "2?"]


def test_options_of_both_packages_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="`num_runs` is an option of eval-protocol and cannot be"):
        decorated(samples=[{"question": "?"}], num_runs=2)
    with pytest.raises(ConfigError, match="cannot be combined with `threshold`"):
        decorated(**NO_OP, threshold=0.5)


def test_several_models_are_several_endpoints() -> None:
    given = [{"model": "mock:fixed"}, {"model": "mock:echo"}]

    asked = decorated(input_rows=ROWS, completion_params=given)

    assert [endpoint.model for endpoint in asked.endpoints] == ["fixed", "echo"]


@pytest.mark.parametrize(
    ("mode", "flags"),
    [("pointwise", {}), ("groupwise", {"groupwise": True}), ("all", {"batch": True})],
)
def test_modes_say_how_many_rows_one_call_judges(mode: str, flags: dict[str, bool]) -> None:
    translated = translate(**NO_OP, mode=mode)

    assert {
        name: translated[name] for name in ("groupwise", "batch") if name in translated
    } == flags


@pytest.mark.parametrize("given", [1, 0.5, EvaluationThreshold(success=0.5), {"success": 0.5}])
def test_a_threshold_is_a_number_or_an_object(given: Any) -> None:
    assert translate(**NO_OP, passed_threshold=given)["threshold"] in (1, 0.5)


def test_without_a_processor_the_model_is_asked_once() -> None:
    translated = translate(**MODEL)
    row = Sample(prompt=[question("?"), said("recorded")])

    assert translated["prepare_messages"](row) == [question("?")]
    keeps = SingleTurnRolloutProcessor(drop_trailing_assistant_messages=False)
    kept = translate(**MODEL, rollout_processor=keeps)["prepare_messages"](row)
    assert kept == [question("?"), said("recorded")]


def test_no_op_asks_nobody() -> None:
    translated = translate(**NO_OP, completion_params=[{"model": "openai/gpt-5"}])

    assert not translated.keys() & {"endpoint", "endpoints", "environment", "rollout_fn"}


def test_a_custom_processor_needs_no_model() -> None:
    translated = translate(input_rows=ROWS, rollout_processor=Custom())

    assert "endpoint" not in translated
    assert callable(translated["rollout_fn"])


def test_steps_bound_an_episode() -> None:
    gym = translate(
        **MODEL, rollout_processor=MCPGymRolloutProcessor(), server_script_path="s.py", steps=7
    )

    assert gym["max_turns"] == 7
    assert translate(**MODEL, rollout_processor=AgentRolloutProcessor())["max_turns"] == 30


@pytest.mark.parametrize("name", ["input_messages", "input_rows"])
def test_rows_are_cut_filtered_and_preprocessed(name: str) -> None:
    conversations = [[[question(f"{n}?")] for n in range(3)]]
    given: dict[str, Any] = {name: ROWS if name == "input_rows" else conversations}
    ids = [row.id for row in rows(**given)]

    assert len(set(ids)) == 3
    assert [row.id for row in rows(**given, max_dataset_rows=2)] == ids[:2]
    assert [row.id for row in rows(**given, filtered_row_ids=ids[1:2])] == ids[1:2]
    assert [row.id for row in rows(**given, preprocess_fn=lambda rows: rows[::-1])] == ids[::-1]


def test_rows_are_filtered_before_they_are_preprocessed() -> None:
    given = [Sample(prompt=[question(f"{n}?")], metadata={"row_id": f"r{n}"}) for n in range(3)]

    def split(rows: list[Sample]) -> list[Sample]:
        return [
            Sample(prompt=[question(f"{row.messages[0].text} {n}")])
            for row in rows
            for n in range(2)
        ]

    found = rows(input_rows=[given], filtered_row_ids=["r1"], preprocess_fn=split)

    assert [row.messages[0].text for row in found] == ["1? 0", "1? 1"]


def test_rows_that_are_split_from_one_have_numbered_ids() -> None:
    def split(rows: list[Sample]) -> list[Sample]:
        return [row.model_copy(deep=True) for row in rows for _ in range(2)]

    given = [Sample(prompt=[question("a?")], metadata={"row_id": "a"}), Sample(prompt="b?")]
    (*copies, one, other) = rows(input_rows=[given], preprocess_fn=split)

    assert [row.id for row in copies] == ["a", "a-2"]
    assert other.id == f"{one.id}-2"


def test_rows_are_made_anew_for_each_pass() -> None:
    samples = translate(**NO_OP)["samples"]
    for row in samples:
        row.messages = [Message(role="user", content="changed")]

    assert [row.messages[0].text for row in samples] == ["0?", "1?", "2?"]
    assert ROWS[0][0].metadata == {}


def test_a_dataset_is_found_beside_the_test_and_given_to_the_adapter_whole(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"n": 1}\n\n{"n": 2}\n')
    (tmp_path / "b.jsonl").write_text('{"n": 3}\n{"n": 3}\n')
    seen: list[list[dict[str, Any]]] = []

    def adapt(given: list[dict[str, Any]]) -> list[Sample]:
        seen.append(given)
        return [Sample(prompt=str(row["n"])) for row in given]

    options = {"input_dataset": ["a.jsonl", "b.jsonl"], "dataset_adapter": adapt, **NO_OP}
    del options["input_rows"]
    translated = translate_options({**options, "max_dataset_rows": 3}, str(tmp_path))

    assert [row.prompt for row in translated["samples"]] == ["1", "2", "3"]
    assert seen == [[{"n": 1}, {"n": 2}, {"n": 3}]]


def test_without_an_adapter_rows_have_the_fields_of_an_evaluation_row(tmp_path: Path) -> None:
    line = '{"messages": [{"role": "user", "content": "?"}], "input_metadata": {"row_id": "x"}}\n'
    (tmp_path / "rows.jsonl").write_text(line)

    (row,) = rows(input_dataset=[str(tmp_path / "rows.jsonl")])

    assert (row.id, row.messages[0].text) == ("x", "?")


def test_an_adapter_that_returns_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"n": 1}\n')

    with pytest.raises(DatasetError, match="`dataset_adapter` did not return a list"):
        rows(input_dataset=[str(tmp_path / "rows.jsonl")], dataset_adapter=lambda rows: rows)


@pytest.mark.parametrize(
    ("params", "config", "expected"),
    [
        ({}, ExceptionHandlerConfig(), 2),
        ({}, handler(max_tries=5), 4),
        ({}, handler(max_tries=1), 0),
        ({}, ExceptionHandlerConfig(retryable_exceptions=set()), 0),
        ({"max_retries": 7}, handler(max_tries=5), 7),
        ({"num_retries": 0}, handler(max_tries=5), 0),
        ({}, None, None),
    ],
)
def test_tries_are_the_retries_of_each_endpoint(
    params: dict[str, Any], config: ExceptionHandlerConfig | None, expected: int | None
) -> None:
    given = translate(
        input_rows=ROWS,
        completion_params=[{"model": "openai/a", **params}, {"model": "openai/b", **params}],
        exception_handler_config=config,
    )

    assert [endpoint.max_retries for endpoint in given["endpoints"]] == [expected, expected]


def test_none_is_the_default_of_an_option() -> None:
    given = translate(**NO_OP, max_concurrent_rollouts=None, num_runs=None)

    assert (given["concurrency"], given["repeats"]) == (96, 1)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"data_loaders": [1]}, "`data_loaders` of eval-protocol is not supported"),
    ({"evaluation_test_kwargs": [{"a": 1}]}, "`evaluation_test_kwargs` of"),
    ({"exception_handler_config": object()}, "`exception_handler_config` of"),
    ({"exception_handler_config": handler(strategy="constant")}, "backoff_config.strategy of"),
    (
        {"exception_handler_config": handler(max_delay=5, giveup_func=lambda error: True)},
        "backoff_config.max_delay, backoff_config.giveup_func of eval-protocol",
    ),
    (
        {"exception_handler_config": ExceptionHandlerConfig(retryable_exceptions={KeyError})},
        "retryable_exceptions of",
    ),
    ({"exception_handler_config": handler(max_tries=0)}, "max_tries=0 is not a whole number of 1"),
    (
        {
            **MODEL,
            "rollout_processor": Custom(),
            "exception_handler_config": ExceptionHandlerConfig(),
        },
        "`exception_handler_config` with Custom of",
    ),
    ({"logger": object()}, "`logger` of"),
    ({"aggregation_method": "max"}, "aggregation_method='max' of"),
    ({"mode": "listwise"}, "mode='listwise' is not one of pointwise, groupwise, all"),
    ({"passed_threshold": {"success": 0.5, "standard_error": 0.1}}, "a `standard_error` of"),
    ({"input_rows": [*ROWS, *ROWS]}, "`input_rows` with 2 datasets of"),
    ({"input_rows": ROWS[0]}, "`input_rows` is not a list of datasets"),
    ({"input_rows": [[{}]]}, "a row of `input_rows` is not an EvaluationRow"),
    ({"input_messages": [[question("?")]], "input_rows": None}, "is not a list of messages"),
    ({"input_messages": [[[]]]}, "pass exactly one of input_dataset, input_messages, input_rows"),
    ({"input_rows": None}, "pass exactly one of"),
    (
        {"input_rows": None, "input_dataset": ["a", "b"], "combine_datasets": False},
        "combine_datasets=False of",
    ),
    ({"completion_params": 5}, "completion_params=5 is not a list of dictionaries"),
    ({"filtered_row_ids": "abc"}, "filtered_row_ids='abc' is not a list of row ids"),
    ({"filtered_row_ids": [5]}, "a row id in `filtered_row_ids` is not text"),
    ({"input_rows": None, "input_dataset": 5}, "input_dataset=5 is not a list of paths"),
    ({"max_concurrent_rollouts": "8"}, "max_concurrent_rollouts='8' is not a whole number"),
    ({"max_dataset_rows": True}, "max_dataset_rows=True is not a whole number"),
    ({"preprocess_fn": 5}, "preprocess_fn=5 is not a function"),
    ({"steps": 1.5}, r"steps=1\.5 is not a whole number"),
    ({"passed_threshold": {"a": 1}}, r"passed_threshold=\{'a': 1\} is not a threshold"),
    ({"rollout_processor": NoOpRolloutProcessor}, "is not a RolloutProcessor"),
    ({"rollout_processor": None}, "`completion_params` is missing"),
    ({"rollout_processor": None, "completion_params": {"model": "m"}}, "is not a list of"),
    (
        {**MODEL, "rollout_processor": None, "rollout_processor_kwargs": {"a": 1}},
        r"rollout_processor_kwargs=\['a'\] of",
    ),
    (
        {
            "rollout_processor": Custom(),
            "completion_params": [{"model": "a"}, {"model": "b"}],
        },
        "Custom with several `completion_params` of",
    ),
    ({**MODEL, "rollout_processor": MCPGymRolloutProcessor()}, "needs `server_script_path`"),
    (
        {
            **MODEL,
            "rollout_processor": MCPGymRolloutProcessor(),
            "server_script_path": "s.py",
            "rollout_processor_kwargs": {"speed": 2},
        },
        "does not support 'speed'",
    ),
    (
        {
            **MODEL,
            "rollout_processor": MCPGymRolloutProcessor(),
            "server_script_path": "s.py",
            "rollout_processor_kwargs": {"start_server": False},
        },
        "does not support 'start_server' with the value False",
    ),
    (
        {"completion_params": [{"model": "a"}, {"model": "b"}]},
        "NoOpRolloutProcessor with several `completion_params` of",
    ),
]


@pytest.mark.parametrize(("options", "problem"), REFUSED)
def test_what_is_not_supported_is_refused_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        translate(**{**NO_OP, **options})


def test_options_without_an_effect_are_accepted() -> None:
    assert translate(**NO_OP, disable_browser_open=True).keys() == translate(**NO_OP).keys()
    # A benchmark of eval-protocol gives this to a processor that does not read it.
    body = {"extra_body": {"reasoning_effort": "low"}}
    assert translate(**MODEL, rollout_processor_kwargs=body).keys() == translate(**MODEL).keys()


def test_the_documentation_has_a_line_for_every_option() -> None:
    page = (Path(__file__).parents[3] / "docs" / "compat.md").read_text("utf-8")

    assert [name for name in sorted(_EVAL_PROTOCOL_OPTIONS) if f"| `{name}` |" not in page] == []
