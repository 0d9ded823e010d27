"""What to run: refused when it makes no sense, described without secrets, seeded."""

import pickle
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assay.environments import CalculatorEnvironment
from assay.errors import ConfigError
from assay.runner import EvalConfig
from assay.scorers import METRICS, RegisteredMetric
from assay.stats import mean_interval
from assay.types import Endpoint, Sample
from plugin_package import install_package
from runner_runs import ECHO, right, rows, run


def test_each_rollout_has_a_seed_of_its_own_zero_included() -> None:
    config = EvalConfig(score_fn=right, seed=0, repeats=2)
    one, other = Sample(id="a"), Sample(id="b")

    seeds = {config.seed_of(sample, repeat) for sample in (one, other) for repeat in (0, 1)}

    assert len(seeds) == 4
    assert None not in seeds
    assert config.seed_of(one, 0) == config.seed_of(Sample(id="a"), 0)
    assert EvalConfig(score_fn=right).seed_of(one, 0) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "neither `score_fn` nor `environment` is set"),
        ({"score_fn": 3}, "score_fn=3 is not callable"),
        ({"score_fn": lambda: 1.0}, "`score_fn` cannot be called with a sample"),
        ({"score_fn": lambda trajectory, sample: 1.0}, "missing a required argument: 'sample'"),
        ({"score_fn": right, "repeats": 0}, "repeats=0"),
        ({"score_fn": right, "concurrency": True}, "concurrency=True"),
        ({"score_fn": right, "concurrency": 10**9}, "concurrency=1000000000 is above 100000"),
        ({"score_fn": right, "timeout_s": 0}, "timeout_s=0"),
        ({"score_fn": right, "timeout_s": "5"}, "timeout_s='5' is not a number"),
        ({"score_fn": right, "timeout_s": True}, "timeout_s=True"),
        ({"score_fn": right, "timeout_s": float("inf")}, "timeout_s=inf is not a number"),
        ({"score_fn": right, "seed": "x"}, "seed='x' is not a whole number"),
        ({"score_fn": right, "seed": True}, "seed=True"),
        ({"score_fn": right, "max_samples": 2.0}, r"max_samples=2\.0 is not a whole number"),
        ({"score_fn": right, "max_samples": True}, "max_samples=True"),
        ({"score_fn": right, "name": 5}, "`name` cannot be of type `int`"),
        (
            {"score_fn": right, "limits": {}},
            r"`limits` cannot be of type `dict`\n.*assay\.agents\.Limits",
        ),
        ({"score_fn": right, "client": None}, "`client` cannot be of type `NoneType`"),
        ({"score_fn": right, "endpoint": 5}, r"`endpoint` cannot be of type `int`\n.*model string"),
        (
            {"score_fn": right, "endpoint": "gpt-4o"},
            r"a model string has the form `provider:model`",
        ),
        ({"score_fn": right, "prepare_messages": lambda s: []}, "no effect without an agent"),
        (
            {"score_fn": right, "bounds": 5},
            "bounds=5 is not a pair of the lowest and the highest score",
        ),
        ({"score_fn": right, "bounds": (0, 1, 2)}, "bounds="),
        ({"score_fn": right, "bounds": (False, True)}, "bounds="),
        ({"score_fn": right, "bounds": (1, -1)}, "the first must be below the second"),
        ({"score_fn": right, "rollout_fn": 3}, "rollout_fn=3 is not callable"),
        ({"environment": "lake"}, "unknown environment 'lake'"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EvalConfig(**fields)


def test_what_stands_where_an_endpoint_belongs_is_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        EvalConfig(score_fn=right, endpoint=["openai:m@http://me:canary@host"])  # type: ignore[arg-type]  # refused

    assert "canary" not in str(refused.value)


def test_a_model_string_is_an_endpoint() -> None:
    config = EvalConfig(score_fn=right, endpoint="mock:echo")

    assert config.endpoint == ECHO
    assert config == EvalConfig(score_fn=right, endpoint=ECHO)
    assert replace(config, repeats=2).endpoint == ECHO
    assert config.fingerprint() == EvalConfig(score_fn=right, endpoint=ECHO).fingerprint()
    assert EvalConfig(score_fn=right).endpoint is None


def test_bounds_are_described_only_where_they_are_given() -> None:
    plain = EvalConfig(score_fn=right)

    assert list(plain.describe()) == [
        "endpoint",
        "score_fn",
        "prepare_messages",
        "environment_factory",
        "limits",
        "seed",
        "sample_timeout_s",
    ]
    assert EvalConfig(score_fn=right, bounds=(-1, 1)).describe()["bounds"] == [-1.0, 1.0]


def test_an_environment_has_the_name_of_the_seeds_too() -> None:
    config = EvalConfig(environment="calculator")

    by_alias: Any = {"environment_factory": "calculator"}
    assert EvalConfig(**by_alias) == config
    assert replace(EvalConfig(**by_alias), repeats=2).environment == "calculator"
    with pytest.raises(ConfigError, match="both `environment` and `environment_factory` are given"):
        EvalConfig(environment="basic", **by_alias)


def test_a_class_or_a_name_creates_an_environment_for_each_sample() -> None:
    for environment in (
        "calculator",
        CalculatorEnvironment,
        lambda sample: CalculatorEnvironment(),
    ):
        config = EvalConfig(environment=environment)
        made = [config.make_environment(Sample(id=name)) for name in "ab"]
        assert [type(each) for each in made] == [CalculatorEnvironment] * 2
        assert made[0] is not made[1]


def test_a_configuration_with_a_named_environment_can_be_pickled() -> None:
    config = EvalConfig(score_fn=right, environment="calculator")

    assert pickle.loads(pickle.dumps(config)) == config


def at_least(sample: Sample, bar: int) -> bool:
    if sample.id == "r1" and bar == 1:
        raise ConnectionError("the judge is down")
    return len(sample.response) >= bar


def test_a_run_is_not_resumed_with_other_parameters_of_its_scorer(store: Path) -> None:
    of_bar = [EvalConfig(endpoint=ECHO, score_fn=partial(at_least, bar=bar)) for bar in (1, 9)]
    run(rows(2), of_bar[0], store=store)

    with pytest.raises(ConfigError, match=r"score_fn\.with\.bar: '[0-9a-f]{8}' -> '[0-9a-f]{8}'"):
        run(rows(2), of_bar[1], store=store, resume="latest")

    again = EvalConfig(endpoint=ECHO, score_fn=partial(at_least, bar=1))
    assert run(rows(2), again, store=store, resume="latest").summary.failed == {"scorer": 1}


def test_the_intervals_of_a_run_are_those_of_its_bounds(store: Path) -> None:
    config = EvalConfig(endpoint=ECHO, score_fn=lambda sample: 1.0, bounds=(-1, 1))

    report = run(rows(4), config, store=store)

    assert report.summary.bounds == (-1.0, 1.0)
    assert report.summary.score.interval == mean_interval([1.0] * 4, bounds=(-1, 1))


def test_the_description_of_a_run_holds_no_secret() -> None:
    keyed = Endpoint(provider="openai", model="m", api_key="canary", headers={"X": "canary"})

    assert "canary" not in str(EvalConfig(endpoint=keyed, score_fn=right).describe())


@pytest.mark.parametrize("name", ["prepare_messages", "environment"])
def test_only_a_scorer_may_be_async(name: str) -> None:
    async def later(sample: Sample) -> Any: ...

    given: dict[str, Any] = {"score_fn": right, name: later}
    with pytest.raises(ConfigError, match=f"`{name}` is async"):
        EvalConfig(**given)


def test_a_scorer_may_be_the_name_of_a_metric() -> None:
    named = EvalConfig(score_fn="json_valid")

    assert named.scorer is METRICS["json_valid"].scorer
    with pytest.raises(ConfigError, match="no metric is named 'json'"):
        EvalConfig(score_fn="json")


def test_the_code_of_a_named_plugin_is_a_part_of_the_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = []
    for version, base in enumerate(("Basic", "Calculator")):
        code = (
            f"from assay.environments import {base}Environment\n"
            f"def create():\n    return {base}Environment()\n"
        )
        with monkeypatch.context() as patch:
            entries = {"environments.desk": "acme_assay:create"}
            install_package(tmp_path / str(version), patch, entries, code=code)
            described.append(EvalConfig(environment="desk").describe())

    assert described[0]["environment_factory"] != described[1]["environment_factory"]
    assert EvalConfig(environment="calculator").describe()["environment_factory"] == "calculator"


def test_the_direction_and_the_range_of_a_metric_are_recorded() -> None:
    length = RegisteredMetric("length", right, "length", direction="min", range=(0.0, 50.0))

    plain, low = EvalConfig(score_fn=right), EvalConfig(score_fn=length)

    assert (plain.direction, plain.score_bounds) == ("max", None)
    assert (low.direction, low.score_bounds, low.scorer) == ("min", (0.0, 50.0), right)
    assert low.describe() == {**plain.describe(), "direction": "min", "bounds": [0.0, 50.0]}
    assert EvalConfig(score_fn=length, bounds=(0, 99)).score_bounds == (0, 99)
    assert "direction" not in replace(low, score_fn=right).describe()
    assert EvalConfig(score_fn="exact_answer").fingerprint() == (
        EvalConfig(score_fn=METRICS["exact_answer"].scorer).fingerprint()
    )
