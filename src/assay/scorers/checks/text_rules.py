"""Rules about a text of the conversation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json

from .conditions import (
    COMPARISONS,
    CONDITIONS,
    Condition,
    find_number_problem,
    is_equal_json,
    quote_json,
    read_bounds,
    read_condition,
)
from .conversation import ConversationView, Passage
from .findings import CheckFinding, Rule, cut_excerpt, describe_beginning, mark_unscored
from .json_paths import parse_json_path
from .json_schemas import compile_schema
from .patterns import compile_pattern
from .targets import TextTarget, read_target
from .yaml_node import Node

TEXT_KEYS = ("target", "tool", "turn", "scope", "of", "absent")

Match = tuple[bool, str]
"""Whether one passage passes, and why."""

PassageTest = Callable[[Passage], Match]


@dataclass(frozen=True)
class TextRule:
    """Applies a test to the passages of a target."""

    target: TextTarget
    test: PassageTest
    every: bool
    """Whether all passages must pass, or one."""

    absent: bool | None
    """Whether a missing target passes; None: the check is unscored."""

    def __call__(self, reading: ConversationView) -> CheckFinding:
        agents = self.target.scope.agents
        if self.target.of_agent and (why := reading.explain_unscored(agents)):
            return mark_unscored(why)
        passages = self.target.list_passages(reading)
        if not passages:
            return CheckFinding(self.absent, f"there is no {self.target.words}")
        first: CheckFinding | None = None
        for passage in passages:
            try:
                passed, reason = self.test(passage)
            except RecursionError:
                return mark_unscored(f"{passage.what} in {passage.place} is nested too deep")
            # With `every` the first failure decides, with `any` the first pass.
            if passed is not self.every:
                return CheckFinding(passed, reason)
            first = first or CheckFinding(passed, reason)
        assert first is not None  # there is a passage
        more = f"; the same of {len(passages) - 1} more" if len(passages) > 1 else ""
        return CheckFinding(first.passed, first.reason + more)


def read_text_rule(name: str, check: Node) -> Rule:
    """Read the text rule `name` of a check, with its target."""
    make, of = _TESTS[name]
    test = make(check.at(name))
    target = read_target(check)
    given = check.get("of")
    if given is not None:
        of = "every" if given.one_of(("any", "every")) == "every" else "any"
    # A forbidden text is not in a missing target; any other rule needs the target to exist.
    absent: bool | None = name in _NEGATED_RULES
    if (given := check.get("absent")) is not None:
        absent = given.one_of(("pass", "fail")) == "pass"
    elif target.name == "reasoning":
        # Many formats omit reasoning: a record without it does not show that there was none.
        absent = None
    return TextRule(target, test, of == "every", absent)


def _read_matches(given: Node) -> PassageTest:
    pattern = compile_pattern(given)

    def match_passage(passage: Passage) -> Match:
        found = pattern.search(passage.text)
        if found is None:
            return (
                False,
                f"no match for {quote_json(pattern.source)}: {describe_beginning(passage)}",
            )
        piece = cut_excerpt(passage.text, found.start, len(found.text))
        return True, f"{passage.what} in {passage.describe_place(found.start)}: match in {piece}"

    return match_passage


def _read_contains(given: Node) -> PassageTest:
    words = given.texts()

    def match_passage(passage: Passage) -> Match:
        for word in words:
            if word not in passage.text:
                return False, f"no {quote_json(word)}: {describe_beginning(passage)}"
        start = passage.text.index(words[0])
        piece = cut_excerpt(passage.text, start, len(words[0]))
        return True, f"{passage.what} in {passage.describe_place(start)}: found in {piece}"

    return match_passage


def _read_not_contains(given: Node) -> PassageTest:
    words = given.texts()

    def match_passage(passage: Passage) -> Match:
        for word in words:
            if (start := passage.text.find(word)) >= 0:
                piece = cut_excerpt(passage.text, start, len(word))
                place = passage.describe_place(start)
                return False, f"{passage.what} in {place}: {quote_json(word)} in {piece}"
        return True, f"{passage.what} in {passage.place}: not found"

    return match_passage


def _read_not_matches(given: Node) -> PassageTest:
    matching = _read_matches(given)

    def match_passage(passage: Passage) -> Match:
        matched, reason = matching(passage)
        if matched:
            return False, reason
        return True, f"{passage.what} in {passage.place}: no match"

    return match_passage


def _read_equals(given: Node) -> PassageTest:
    wanted = given.value
    if wanted is None:
        raise given.wrong("the value is null, which no text equals")

    def match_passage(passage: Passage) -> Match:
        if isinstance(wanted, str):
            # Models and tools often end a text with a line break.
            equal = passage.text.strip() == wanted.strip()
        else:
            readable, value = parse_json_passage(passage)
            equal = readable and is_equal_json(value, wanted)
        if equal:
            return True, f"{passage.what} in {passage.place}: equals {quote_json(wanted)}"
        return False, f"the text is not {quote_json(wanted)}: {describe_beginning(passage)}"

    return match_passage


def _read_json_path(given: Node) -> PassageTest:
    condition: Condition | None = None
    if isinstance(given.value, str):
        path = parse_json_path(given)
    else:
        given.mapping(("path", *CONDITIONS))
        if "path" not in given.value:
            raise given.wrong("the key `path` is missing", hint="for example path: $.status")
        path = parse_json_path(given.at("path"))
        rest = {key: value for key, value in given.value.items() if key != "path"}
        if rest:
            condition = read_condition(Node(rest, given.file, given.place, given.lines))

    def match_passage(passage: Passage) -> Match:
        readable, value = parse_json_passage(passage)
        if not readable:
            return False, f"the text is not JSON: {describe_beginning(passage)}"
        found = path.find(value)
        where = f"{passage.what} in {passage.place}"
        if not found:
            return False, f"no value at {path.source} of {where}: {cut_excerpt(passage.text)}"
        problems = [None if condition is None else condition.problem(each) for _, each in found]
        if None in problems:
            place, member = found[problems.index(None)]
            return True, f"{place} of {where}: is {quote_json(member)}"
        return False, f"{found[0][0]} of {where}: {problems[0]}"

    return match_passage


def _read_json_schema(given: Node) -> PassageTest:
    schema = compile_schema(given)

    def match_passage(passage: Passage) -> Match:
        readable, value = parse_json_passage(passage)
        if not readable:
            return False, f"the text is not JSON: {describe_beginning(passage)}"
        where = f"{passage.what} in {passage.place}"
        problem = schema.problem(value)
        if problem is None:
            return True, f"{where}: matches the schema"
        return False, f"{where}: does not match the schema at {problem}"

    return match_passage


def _read_number_bounds(given: Node) -> PassageTest:
    given.mapping(("pattern", "path", *COMPARISONS))
    bounds = read_bounds(given)
    if not bounds:
        raise given.wrong("the check has no bound", hint=f"add one of {', '.join(COMPARISONS)}")
    if "pattern" in given.value and "path" in given.value:
        raise given.wrong("the check has both `pattern` and `path`", hint="keep one of them")
    find = _build_number_finder(given)

    def match_passage(passage: Passage) -> Match:
        value = find(passage)
        if value is None:
            return False, f"no number found: {describe_beginning(passage)}"
        problem = find_number_problem(value, bounds)
        where = f"{passage.what} in {passage.place}"
        return problem is None, f"{where}: {problem or f'{value} is within bounds'}"

    return match_passage


def _build_number_finder(given: Node) -> Callable[[Passage], float | None]:
    """Return the function that reads the number: by path, by pattern, or the whole text."""
    if (at := given.get("path")) is not None:
        path = parse_json_path(at)

        def by_path(passage: Passage) -> float | None:
            readable, value = parse_json_passage(passage)
            found = path.find(value) if readable else []
            return _to_number(found[0][1]) if found else None

        return by_path
    if (at := given.get("pattern")) is not None:
        pattern = compile_pattern(at)

        def by_pattern(passage: Passage) -> float | None:
            match = pattern.search(passage.text)
            return (
                None
                if match is None
                else _to_number(match.text if match.group is None else match.group)
            )

        return by_pattern
    return lambda passage: _to_number(passage.text)


def _to_number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            # A longer text is not a number; parsing megabytes of digits would take long.
            return float(value.strip()) if len(value) <= 100 else None
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def parse_json_passage(passage: Passage) -> tuple[bool, Any]:
    """Return whether a passage is JSON, and its value."""
    if passage.value is not None:
        return True, passage.value
    try:
        return True, from_json(passage.text, allow_inf_nan=False)
    except ValueError:
        return False, None


_NEGATED_RULES = ("not_matches", "not_contains")
_TESTS: dict[str, tuple[Callable[[Node], PassageTest], Literal["any", "every"]]] = {
    "matches": (_read_matches, "any"),
    "not_matches": (_read_not_matches, "every"),
    "contains": (_read_contains, "any"),
    "not_contains": (_read_not_contains, "every"),
    "equals": (_read_equals, "any"),
    "json_path": (_read_json_path, "every"),
    "json_schema": (_read_json_schema, "every"),
    "number": (_read_number_bounds, "every"),
}
TEXT_RULES = tuple(_TESTS)
