"""Rules about a text of the conversation."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, model_validator
from pydantic_core import from_json

from assay.types import InvalidValue

from .check_entry import Given, Texts, expand_short_form, refuse_null
from .conditions import Bounds, Condition, is_equal_json, quote_json
from .conversation import ConversationView, Passage
from .findings import CheckFinding, combine_findings, cut_excerpt, describe_beginning, mark_unscored
from .json_paths import JsonPathText
from .json_schemas import SchemaMapping
from .patterns import PatternText
from .targets import TargetedEntry

Match = tuple[bool, str]
"""Whether one passage passes, and why."""


class TextRule(TargetedEntry):
    """Applies a test to the passages of a target."""

    of: Given[Literal["any", "every"]] = None
    """Whether one passage must pass, or all of them."""

    absent: Given[Literal["pass", "fail"]] = None
    """The outcome for a conversation without the target."""

    needs_every: ClassVar[bool] = True
    """The default of `of`."""

    passes_without_target: ClassVar[bool] = False
    """The default of `absent`. A forbidden text is not in a missing target; any other rule needs
    the target to exist."""

    def test(self, passage: Passage) -> Match:
        """Apply the rule to one passage."""
        raise NotImplementedError

    def judge(self, reading: ConversationView) -> CheckFinding:
        if self.is_by_agent and (why := reading.explain_unscored(self.limits.agents)):
            return mark_unscored(why)
        passages = self.list_passages(reading)
        if not passages:
            passed: bool | None = self.passes_without_target
            if self.absent is not None:
                passed = self.absent == "pass"
            elif self.target == "reasoning":
                # Many formats omit reasoning: its absence does not show that there was none.
                passed = None
            return CheckFinding(passed, f"there is no `{self.target}`{self.limits.words}")
        every = self.needs_every if self.of is None else self.of == "every"
        return combine_findings(map(self._judge_passage, passages), every=every)

    def _judge_passage(self, passage: Passage) -> CheckFinding:
        try:
            return CheckFinding(*self.test(passage))
        except RecursionError:
            return mark_unscored(f"{passage.what} in {passage.place} is nested too deep")


class Matches(TextRule):
    """Pass when the pattern matches anywhere in the text."""

    matches: PatternText
    needs_every = False

    def test(self, passage: Passage) -> Match:
        return _search_passage(self.matches, passage)


class NotMatches(TextRule):
    """Pass when the pattern matches nowhere in the text."""

    not_matches: PatternText
    passes_without_target = True

    def test(self, passage: Passage) -> Match:
        matched, reason = _search_passage(self.not_matches, passage)
        return not matched, reason if matched else f"{passage.what} in {passage.place}: no match"


def _search_passage(pattern: PatternText, passage: Passage) -> Match:
    found = pattern.search(passage.text)
    if found is None:
        reason = f"no match for {quote_json(pattern.source)}: {describe_beginning(passage)}"
        return False, reason
    piece = cut_excerpt(passage.text, found.start, len(found.text))
    return True, f"{passage.what} in {passage.describe_place(found.start)}: match in {piece}"


class Contains(TextRule):
    """Pass when the text contains all of the words."""

    contains: Texts
    needs_every = False

    def test(self, passage: Passage) -> Match:
        for word in self.contains:
            if word not in passage.text:
                return False, f"no {quote_json(word)}: {describe_beginning(passage)}"
        start = passage.text.index(self.contains[0])
        piece = cut_excerpt(passage.text, start, len(self.contains[0]))
        return True, f"{passage.what} in {passage.describe_place(start)}: found in {piece}"


class NotContains(TextRule):
    """Pass when the text contains none of the words."""

    not_contains: Texts
    passes_without_target = True

    def test(self, passage: Passage) -> Match:
        for word in self.not_contains:
            if (start := passage.text.find(word)) >= 0:
                piece = cut_excerpt(passage.text, start, len(word))
                place = passage.describe_place(start)
                return False, f"{passage.what} in {place}: {quote_json(word)} in {piece}"
        return True, f"{passage.what} in {passage.place}: not found"


class Equals(TextRule):
    """Pass when the text, or its JSON value, equals the value."""

    equals: Annotated[Any, BeforeValidator(refuse_null)]
    needs_every = False

    def test(self, passage: Passage) -> Match:
        wanted = self.equals
        if isinstance(wanted, str):
            # Models and tools often end a text with a line break.
            equal = passage.text.strip() == wanted.strip()
        else:
            readable, value = parse_json_passage(passage)
            equal = readable and is_equal_json(value, wanted)
        if equal:
            return True, f"{passage.what} in {passage.place}: equals {quote_json(wanted)}"
        return False, f"the text is not {quote_json(wanted)}: {describe_beginning(passage)}"


class PathCondition(Condition):
    """A path, and the conditions that a value at the path must meet, if any."""

    path: JsonPathText


class JsonPathRule(TextRule):
    """Pass when the text is JSON and a value at the path meets the conditions."""

    json_path: Annotated[PathCondition, expand_short_form("path")]

    def test(self, passage: Passage) -> Match:
        readable, value = parse_json_passage(passage)
        if not readable:
            return False, f"the text is not JSON: {describe_beginning(passage)}"
        path = self.json_path.path
        found = path.find(value)
        where = f"{passage.what} in {passage.place}"
        if not found:
            return False, f"no value at {path.source} of {where}: {cut_excerpt(passage.text)}"
        problems = [self.json_path.problem(each) for _, each in found]
        if None in problems:
            place, member = found[problems.index(None)]
            return True, f"{place} of {where}: is {quote_json(member)}"
        return False, f"{found[0][0]} of {where}: {problems[0]}"


class JsonSchemaRule(TextRule):
    """Pass when the text is JSON that the schema allows."""

    json_schema: SchemaMapping

    def test(self, passage: Passage) -> Match:
        readable, value = parse_json_passage(passage)
        if not readable:
            return False, f"the text is not JSON: {describe_beginning(passage)}"
        where = f"{passage.what} in {passage.place}"
        problem = self.json_schema.problem(value)
        if problem is None:
            return True, f"{where}: matches the schema"
        return False, f"{where}: does not match the schema at {problem}"


class NumberBounds(Bounds):
    """The position of a number in a text, and its bounds."""

    pattern: Given[PatternText] = None
    path: Given[JsonPathText] = None

    @model_validator(mode="after")
    def _can_be_decided(self) -> Self:
        if not self.is_bounded:
            names = ", ".join(Bounds.model_fields)
            raise InvalidValue("the check has no bound", hint=f"add one of {names}")
        if self.pattern is not None and self.path is not None:
            raise InvalidValue("the check has both `pattern` and `path`", hint="keep one of them")
        return self

    def find_number(self, passage: Passage) -> float | None:
        """Return the number at the path, in the match of the pattern, or of the whole text."""
        value: Any = passage.text
        if self.path is not None:
            readable, whole = parse_json_passage(passage)
            found = self.path.find(whole) if readable else []
            value = found[0][1] if found else None
        elif self.pattern is not None:
            match = self.pattern.search(passage.text)
            value = match and (match.text if match.group is None else match.group)
        if isinstance(value, str):
            try:
                # A longer text is not a number; parsing megabytes of digits would take long.
                return float(value.strip()) if len(value) <= 100 else None
            except ValueError:
                return None
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


class NumberRule(TextRule):
    """Pass when a number in the text is within bounds."""

    number: NumberBounds

    def test(self, passage: Passage) -> Match:
        value = self.number.find_number(passage)
        if value is None:
            return False, f"no number found: {describe_beginning(passage)}"
        problem = self.number.find_number_problem(value)
        where = f"{passage.what} in {passage.place}"
        return problem is None, f"{where}: {problem or f'{value} is within bounds'}"


def parse_json_passage(passage: Passage) -> tuple[bool, Any]:
    """Return whether a passage is JSON, and its value."""
    if passage.value is not None:
        return True, passage.value
    try:
        return True, from_json(passage.text, allow_inf_nan=False)
    except ValueError:
        return False, None
