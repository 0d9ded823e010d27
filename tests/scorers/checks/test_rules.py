"""Entries of a check file: one rule each, names, weights, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.scorers import checks_from
from assay.scorers.checks.check_entry import CheckEntry
from assay.scorers.checks.rules import RULES
from check_files import session, written


def checks(*entries: Any) -> tuple[CheckEntry, ...]:
    return checks_from({"checks": list(entries)}).checks


def test_every_rule_that_is_promised_is_there() -> None:
    promised = """matches not_matches contains equals json_path json_schema number tool_called
        tool_not_called tool_order tool_args_match max_tools max_turns max_tokens max_cost
        no_tool_errors python"""

    assert set(promised.split()) <= set(RULES)


def test_a_check_without_a_name_is_named_after_what_it_asks() -> None:
    made = checks(
        {"matches": "a"},
        {"target": "prompt", "matches": "a"},
        {"tool_called": "read"},
        {"tool_called": ["read", "edit"]},
        {"max_tools": 3},
    )

    assert [check.name for check in made] == [
        "response matches",
        "prompt matches",
        "tool_called read",
        "tool_called",
        "max_tools",
    ]


def test_beside_a_weight_the_others_weigh_one() -> None:
    assert [check.weight for check in checks({"max_tools": 1}, {"max_turns": 1})] == [None, None]
    weighted = checks({"max_tools": 1, "weight": 3}, {"max_turns": 1}, {"max_cost": 1, "weight": 0})
    assert [(check.weight, check.decides) for check in weighted] == [
        (3, True),
        (1.0, True),
        (0, False),
    ]


@pytest.mark.parametrize(
    ("entries", "refused"),
    [
        (["max_tools"], "checks[0]: the value is 'max_tools', not a mapping"),
        ([{}], "checks[0]: the check has no rule"),
        ([{"name": "a", "target": "response"}], "has no rule"),
        ([{"mathces": "a"}], "unknown rule 'mathces'\n  hint: did you mean 'matches'?"),
        (
            [{"matches": "a", "contains": "b"}],
            "the check has more than one rule: matches and contains",
        ),
        ([{"matches": "a", "wieght": 1}], "did you mean 'weight'?"),
        ([{"max_turns": 1, "turn": 1}], "`turn` is not allowed with `max_turns`"),
        (
            [{"matches": "a", "weight": -1}],
            "checks[0].weight: the value is -1: Input should be greater than or equal to 0",
        ),
        ([{"matches": "a", "weight": 0}], "every check has weight 0, so the checks give no score"),
        ([{"matches": "a"}, {"matches": "b"}], "checks[1]: another check is named"),
        (
            [{"matches": "a", "name": "x" * 101}],
            "checks[0].name: String should have at most 100 characters",
        ),
        ([{"matches": "a", "name": 5}], "checks[0].name: the value is 5, not text"),
        ([], "checks: the list is empty"),
        ([{"max_turns": 1}] * 1001, "at most 1000 items"),
    ],
)
def test_a_wrong_entry_is_refused(entries: list[Any], refused: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checks(*entries)

    assert refused in str(caught.value)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("check: []\n", "checks.yaml: the file has 2 problems\n"),
        ("{}\n", "checks.yaml:1:1: checks: the field is missing"),
        ("- a\n", "checks.yaml:1:1: the file is a list, not a mapping"),
        (
            "checks:\n  - name: a\n    target: respose\n    matches: b\n",
            "checks.yaml:3:5: checks[0].target: unknown value 'respose'",
        ),
        (
            "checks:\n  - matches: a\n  - name: b\n    tool_args_match:\n      tool: c\n"
            "      args: {d: {matches: '('}}\n",
            "checks.yaml:6:18: checks[1].tool_args_match.args.d.matches: "
            "'(' is not a valid RE2 pattern: missing )",
        ),
    ],
)
def test_a_wrong_file_names_line_and_key(text: str, refused: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        checks_from(written(tmp_path, text))

    assert str(caught.value).removeprefix(f"{tmp_path}/").startswith(refused)


WORDS = st.sampled_from(
    "tool args path of any every tools exact at_least at_most pattern equals matches $.path "
    "read edit ( [ tool.args tool.output response type object $ref # x".split()
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 5) | st.floats() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
KEYS = st.sampled_from([*RULES, "target", "tool", "turn", "of", "absent", "weight", "name"])


@given(st.lists(st.dictionaries(KEYS, VALUES, min_size=1, max_size=3), min_size=1, max_size=2))
@settings(deadline=None, max_examples=300)
def test_any_entry_is_refused_or_judges_a_conversation(entries: list[dict[str, Any]]) -> None:
    try:
        made = checks_from({"checks": entries})
    except ConfigError:
        return

    assert set(made(session()).metrics) == {check.name for check in made.checks}
