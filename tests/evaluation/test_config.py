"""What to run: refused when it makes no sense, described without secrets, seeded."""

from typing import Any

import pytest

from assay.errors import ConfigError
from assay.evaluation import EvalConfig
from assay.models import (
    Endpoint,
    Sample,
)
from evaluation.runs import right


def test_each_rollout_has_a_seed_of_its_own_zero_included() -> None:
    config = EvalConfig(score_fn=right, seed=0, repeats=2)
    one, other = Sample(id="a"), Sample(id="b")

    seeds = {config.seed_of(sample, repeat) for sample in (one, other) for repeat in (0, 1)}

    assert len(seeds) == 4
    assert None not in seeds
    assert config.seed_of(one, 0) == config.seed_of(Sample(id="a"), 0)
    assert config.seed_of(Sample(input={"seed": 0}), 0) == 0
    assert EvalConfig(score_fn=right).seed_of(one, 0) is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "nothing gives a score"),
        ({"score_fn": 3}, "score_fn=3 cannot be called"),
        ({"score_fn": lambda: 1.0}, "`score_fn` cannot be called with a sample"),
        ({"score_fn": lambda trajectory, sample: 1.0}, "missing a required argument: 'sample'"),
        ({"score_fn": right, "repeats": 0}, "repeats=0"),
        ({"score_fn": right, "concurrency": True}, "concurrency=True"),
        ({"score_fn": right, "sample_timeout_s": 0}, "sample_timeout_s=0"),
        ({"environment_factory": "lake"}, "no environment 'lake'"),
    ],
)
def test_a_wrong_configuration_is_refused_at_once(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        EvalConfig(**fields)


def test_the_description_of_a_run_holds_no_secret() -> None:
    keyed = Endpoint(provider="openai", model="m", api_key="canary", headers={"X": "canary"})

    assert "canary" not in str(EvalConfig(endpoint=keyed, score_fn=right).describe())
