"""Rules about a text of the conversation."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic_core import from_json

from .conditions import (
    COMPARISONS,
    CONDITIONS,
    Condition,
    number_problem,
    quoted,
    read_bounds,
    read_condition,
    same,
)
from .conversation import Passage, Reading
from .findings import Finding, Rule, beginning, excerpt, not_judged
from .json_paths import parse_json_path
from .json_schemas import compile_schema
from .patterns import compile_pattern
from .targets import Target, read_target
from .yaml_node import Located

TEXT_KEYS = ("target", "tool", "turn", "scope", "of", "absent")

Held = tuple[bool, str]
"""Whether one passage passes, and why."""

Test = Callable[[Passage], Held]


@dataclass(frozen=True)
class TextRule:
    """Holds a test against the passages of a target."""

    target: Target
    holds: Test
    every: bool
    """Whether all passages must pass, or one."""

    absent: bool | None
    """Whether a target that is not there passes; None: that is not judged."""

    def __call__(self, reading: Reading) -> Finding:
        agents = self.target.scope.agents
        if self.target.of_agent and (why := reading.why_unjudgeable(agents)):
            return not_judged(why)
        passages = self.target.passages(reading)
        if not passages:
            return Finding(self.absent, f"there is no {self.target.words}")
        first: Finding | None = None
        for passage in passages:
            try:
                passed, reason = self.holds(passage)
            except RecursionError:
                return not_judged(f"{passage.what} in {passage.place} is nested too deep")
            if passed is not self.every:
                return Finding(passed, reason)
            first = first or Finding(passed, reason)
        assert first is not None  # there is a passage
        more = f"; the same of {len(passages) - 1} more" if len(passages) > 1 else ""
        return Finding(first.passed, first.reason + more)


def read_text_rule(name: str, check: Located) -> Rule:
    """The rule `name` of a check, with its target."""
    make, of = _TESTS[name]
    test = make(check.at(name))
    target = read_target(check)
    given = check.get("of")
    if given is not None:
        of = "every" if given.one_of(("any", "every")) == "every" else "any"
    return TextRule(target, test, of == "every", _when_absent(name, target, check))


def _when_absent(name: str, target: Target, check: Located) -> bool | None:
    given = check.get("absent")
    if given is not None:
        return given.one_of(("pass", "fail")) == "pass"
    if target.name == "reasoning":
        # Many formats leave it out: that none is recorded does not say that there was none.
        return None
    # What is never said cannot be wrong; anything else that is asked for must be there.
    return name in _DENIALS


def _matches(given: Located) -> Test:
    pattern = compile_pattern(given)

    def held(passage: Passage) -> Held:
        found = pattern.search(passage.text)
        if found is None:
            return False, f"no match for {quoted(pattern.source)}: {beginning(passage)}"
        piece = excerpt(passage.text, found.start, len(found.text))
        return True, f"{passage.what} in {passage.place_at(found.start)}: match in {piece}"

    return held


def _contains(given: Located) -> Test:
    words = given.texts()

    def held(passage: Passage) -> Held:
        for word in words:
            if word not in passage.text:
                return False, f"no {quoted(word)}: {beginning(passage)}"
        start = passage.text.index(words[0])
        piece = excerpt(passage.text, start, len(words[0]))
        return True, f"{passage.what} in {passage.place_at(start)}: found in {piece}"

    return held


def _not_contains(given: Located) -> Test:
    words = given.texts()

    def held(passage: Passage) -> Held:
        for word in words:
            if (start := passage.text.find(word)) >= 0:
                piece = excerpt(passage.text, start, len(word))
                place = passage.place_at(start)
                return False, f"{passage.what} in {place}: {quoted(word)} in {piece}"
        return True, f"{passage.what} in {passage.place}: not found"

    return held


def _not_matches(given: Located) -> Test:
    matching = _matches(given)

    def held(passage: Passage) -> Held:
        matched, reason = matching(passage)
        if matched:
            return False, reason
        return True, f"{passage.what} in {passage.place}: no match"

    return held


def _equals(given: Located) -> Test:
    wanted = given.value
    if wanted is None:
        raise given.wrong("is null, which no text equals")

    def held(passage: Passage) -> Held:
        if isinstance(wanted, str):
            equal = passage.text.strip() == wanted.strip()
        else:
            readable, value = json_of(passage)
            equal = readable and same(value, wanted)
        if equal:
            return True, f"{passage.what} in {passage.place}: is {quoted(wanted)}"
        return False, f"is not {quoted(wanted)}: {beginning(passage)}"

    return held


def _json_path(given: Located) -> Test:
    if isinstance(given.value, str):
        path, condition = parse_json_path(given), None
    else:
        given.mapping(("path", *CONDITIONS))
        if "path" not in given.value:
            raise given.wrong("has no `path`", hint="such as path: $.status")
        path = parse_json_path(given.at("path"))
        condition = _condition_beside_path(given)

    def held(passage: Passage) -> Held:
        readable, value = json_of(passage)
        if not readable:
            return False, f"is not JSON: {beginning(passage)}"
        found = path.find(value)
        where = f"{passage.what} in {passage.place}"
        if not found:
            return False, f"nothing at {path.source} of {where}: {excerpt(passage.text)}"
        problems = [None if condition is None else condition.problem(each) for _, each in found]
        if None in problems:
            place, member = found[problems.index(None)]
            return True, f"{place} of {where}: is {quoted(member)}"
        return False, f"{found[0][0]} of {where}: {problems[0]}"

    return held


def _condition_beside_path(given: Located) -> Condition | None:
    rest = {key: value for key, value in given.value.items() if key != "path"}
    return read_condition(Located(rest, given.file, given.place, given.lines)) if rest else None


def _json_schema(given: Located) -> Test:
    schema = compile_schema(given)

    def held(passage: Passage) -> Held:
        readable, value = json_of(passage)
        if not readable:
            return False, f"is not JSON: {beginning(passage)}"
        where = f"{passage.what} in {passage.place}"
        problem = schema.problem(value)
        if problem is None:
            return True, f"{where}: fits the schema"
        return False, f"{where}: does not fit the schema at {problem}"

    return held


def _number(given: Located) -> Test:
    given.mapping(("pattern", "path", *COMPARISONS))
    bounds = read_bounds(given)
    if not bounds:
        raise given.wrong("compares with nothing", hint=f"give one of {', '.join(COMPARISONS)}")
    if "pattern" in given.value and "path" in given.value:
        raise given.wrong("has both `pattern` and `path`", hint="give one of them")
    find = _number_finder(given)

    def held(passage: Passage) -> Held:
        value = find(passage)
        if value is None:
            return False, f"no number is found: {beginning(passage)}"
        problem = number_problem(value, bounds)
        where = f"{passage.what} in {passage.place}"
        return problem is None, f"{where}: {problem or f'{value} is within bounds'}"

    return held


def _number_finder(given: Located) -> Callable[[Passage], float | None]:
    """What finds the number in a passage: a pattern, a path, or the whole text."""
    if (at := given.get("path")) is not None:
        path = parse_json_path(at)

        def by_path(passage: Passage) -> float | None:
            readable, value = json_of(passage)
            found = path.find(value) if readable else []
            return _as_number(found[0][1]) if found else None

        return by_path
    if (at := given.get("pattern")) is not None:
        pattern = compile_pattern(at)

        def by_pattern(passage: Passage) -> float | None:
            match = pattern.search(passage.text)
            return (
                None
                if match is None
                else _as_number(match.text if match.group is None else match.group)
            )

        return by_pattern
    return lambda passage: _as_number(passage.text)


def _as_number(value: Any) -> float | None:
    if isinstance(value, str):
        try:
            return float(value.strip()) if len(value) <= 100 else None
        except ValueError:
            return None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def json_of(passage: Passage) -> tuple[bool, Any]:
    """Whether a passage is JSON, and the value that it is."""
    if passage.value is not None:
        return True, passage.value
    try:
        return True, from_json(passage.text, allow_inf_nan=False)
    except ValueError:
        return False, None


_DENIALS = ("not_matches", "not_contains")
_TESTS: dict[str, tuple[Callable[[Located], Test], Literal["any", "every"]]] = {
    "matches": (_matches, "any"),
    "not_matches": (_not_matches, "every"),
    "contains": (_contains, "any"),
    "not_contains": (_not_contains, "every"),
    "equals": (_equals, "any"),
    "json_path": (_json_path, "every"),
    "json_schema": (_json_schema, "every"),
    "number": (_number, "every"),
}
TEXT_RULES = tuple(_TESTS)
