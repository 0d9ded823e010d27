"""Rules of plug-ins: `RULE: VALUE` in a check file, read and refused like those of assay."""

from pathlib import Path

import pytest

from assay.errors import ConfigError
from assay.scorers import checks_from
from check_files import judged, session, verdict
from plugin_package import install_package

CODE = """
def max_letters(limit):
    if not isinstance(limit, int):
        raise ValueError("the limit is not a whole number")
    return lambda response: len(response) <= limit

def fails(value):
    def score(sample):
        raise KeyError("no such column")
    return score

def nothing(value):
    return None

def later(value):
    async def score(sample):
        return True
    return score
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("max_letters", "fails", "nothing", "later", "gone")
    entries = {f"check_rules.{name}": f"acme_assay:{name}" for name in names}
    # A rule of assay, which stays one.
    shadow = {"check_rules.contains": "acme_assay:nothing"}
    install_package(tmp_path, monkeypatch, {**entries, **shadow}, code=CODE)


def test_the_value_of_the_rule_decides() -> None:
    assert verdict({"max_letters": 100}) is True
    assert verdict({"max_letters": 3}) is False
    assert verdict({"contains": "3 errors"}) is True


def test_a_rule_is_named_and_weighed_like_any_other() -> None:
    checks = checks_from({"checks": [{"max_letters": 3, "weight": 3}, {"contains": "errors"}]})

    result = checks(session())

    assert list(result.metrics) == ["max_letters", "response contains"]
    assert result.reward == 0.25


def test_a_function_that_raises_leaves_the_check_unscored() -> None:
    metric = judged({"fails": 1})

    assert metric.score is None
    assert metric.reason == "KeyError: 'no such column'"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        ({"max_letters": "few"}, "`max_letters` refuses its value: ValueError: the limit is not a"),
        ({"nothing": 1}, "the plug-in of `nothing` returned a NoneType, not a scorer"),
        ({"later": 1}, "the plug-in of `later` returned an async function, not a scorer"),
        ({"gone": 1}, "`gone = acme_assay:gone` of acme-assay 1.0 cannot be imported"),
        ({"max_letters": 1, "target": "response"}, "`target` is not allowed with `max_letters`"),
        ({"max_letters": 1, "contains": "a"}, "the check has more than one rule"),
        ({"max_leters": 1}, "unknown rule 'max_leters'"),
    ],
)
def test_a_wrong_check_is_refused_before_a_sample_is_read(
    check: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        checks_from({"checks": [check]})

    assert message in str(refused.value)


def test_a_plugin_that_is_not_a_function_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"check_rules.four": "other_assay:four"}
    install_package(tmp_path, monkeypatch, entries, name="other-assay", code="four = 4")

    with pytest.raises(ConfigError, match="the rule is of type `int`, not a function"):
        checks_from({"checks": [{"four": 1}]})
