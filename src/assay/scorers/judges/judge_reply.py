"""Parse the reply of a judge, with or without text around the JSON. Never guess a number."""

import ast
import json
import math
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from assay.types import refuse_json_constant, replace_lone_surrogates

from .evidence import QuoteIndex

_MAX_REPLY = 200_000
# Every `{` may start an object: without a limit a reply of braces takes quadratic time.
_MAX_DECODE_TRIES = 200
_MAX_REPLY_TEXT = 4000
# Each is searched in the whole transcript: a judge that repeats itself may write thousands.
_MAX_QUOTES = 100
_THOUGHTS_START = ("<think>", "<thinking>")
_THOUGHTS_END = ("</think>", "</thinking>")
_TRAILING_COMMA = re.compile(r",(\s*[}\]])")
_SCORE_NUMBER = re.compile(r"[01](?:\.\d+)?|\.\d+")


@dataclass(frozen=True)
class Opinion:
    """The verdict of one reply on one criterion."""

    score: float | None
    """None: the judge abstains."""

    reason: str
    quotes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JudgeReply:
    """The parts of a reply that could be parsed."""

    opinions: dict[str, Opinion] = field(default_factory=dict)
    problem: str | None = None
    """Why the reply is incomplete."""


class UnusableReply(Exception):
    """A reply, or a part of it, that is not in the requested form."""


def parse_reply(
    text: str, names: Sequence[str], *, key: str, material: QuoteIndex, require_key: bool = False
) -> JudgeReply:
    """Return the opinions on the criteria `names`; those that could not be parsed are missing."""
    try:
        found = find_reply_object(
            text, key=key, material=material, has=("criteria",), require_key=require_key
        )
    except UnusableReply as error:
        return JudgeReply(problem=str(error))
    criteria = found["criteria"]
    # Some models write a list of criteria instead of an object.
    if isinstance(criteria, list):
        named = {
            str(each["name"]): each
            for each in criteria
            if isinstance(each, dict) and "name" in each
        }
        criteria = named if len(named) == len(criteria) else criteria
    if not isinstance(criteria, dict):
        return JudgeReply(problem='"criteria" is not an object with the names of the criteria')
    opinions: dict[str, Opinion] = {}
    problems = []
    for name in names:
        try:
            opinions[name] = _parse_opinion(criteria, name)
        except UnusableReply as error:
            problems.append(str(error))
    return JudgeReply(opinions, "; ".join(problems) or None)


def find_reply_object(
    text: str,
    *,
    key: str,
    material: QuoteIndex,
    has: Sequence[str],
    require_key: bool = False,
) -> dict[str, Any]:
    """Return the one object of a reply that answers the prompt. Raises `UnusableReply`.

    An object with the key of the prompt is the answer. An object without the key is accepted only
    when it is alone and not a quote from the material, and never with `require_key`.
    """
    candidates = _find_reply_candidates(text, has)
    if not candidates:
        raise UnusableReply(f"the reply has no JSON object with {', '.join(map(repr, has))}")
    keyed = [value for _, value in candidates if value.get("key") == key]
    if keyed:
        # Models that correct themselves write the final answer last.
        return keyed[-1]
    bare = [(raw, value) for raw, value in candidates if value.get("key") is None]
    if not bare:
        raise UnusableReply('the "key" is not the one that was given')
    if require_key:
        raise UnusableReply('the "key" is missing')
    if len(bare) > 1:
        raise UnusableReply("there is more than one answer, and none has the key")
    raw, value = bare[0]
    if material.contains(raw):
        raise UnusableReply("the answer is copied from the material, and has no key")
    return value


def _find_reply_candidates(text: str, has: Sequence[str]) -> list[tuple[str, dict[str, Any]]]:
    """Return the objects with these fields: from strict JSON, else from repaired text."""
    text = text[:_MAX_REPLY]
    # Drafts inside the reasoning of a judge are not its answer.
    for end in _THOUGHTS_END:
        text = text.rpartition(end)[2]
    if text.lstrip().startswith(_THOUGHTS_START):
        return []  # cut off before the answer
    for read, repaired in (
        (_decode_objects, text),
        (_decode_objects, _TRAILING_COMMA.sub(r"\1", text)),
        (_parse_python_literal, text),
    ):
        found = [each for each in read(repaired) if all(name in each[1] for name in has)]
        if found:
            return found
    return []


def _decode_objects(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    decoder = json.JSONDecoder(strict=False, parse_constant=refuse_json_constant)
    start = text.find("{")
    for _ in range(_MAX_DECODE_TRIES):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
            yield text[start:end], value
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)


def _parse_python_literal(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    # Some models answer in Python's syntax: single quotes, None and True.
    raw = text[text.find("{") : text.rfind("}") + 1]
    try:
        # The compiler warns of escapes such as "\d" in the reply.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(raw)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return
    if isinstance(value, dict):
        yield raw, value


def _parse_opinion(criteria: dict[str, Any], name: str) -> Opinion:
    given = criteria.get(name)
    if not isinstance(given, dict):
        raise UnusableReply(f'the criterion "{name}" is missing')
    if "score" not in given:
        raise UnusableReply(f'"{name}" has no "score"')
    reason, score = given.get("reason"), given["score"]
    if not isinstance(reason, str) or not reason.strip():
        raise UnusableReply(f'"{name}" has no "reason"')
    # Some models quote the number. Other strings, such as "8/10", are not guessed at.
    if isinstance(score, str) and _SCORE_NUMBER.fullmatch(score.strip()):
        score = float(score)
    if score is not None:
        is_number = isinstance(score, int | float) and not isinstance(score, bool)
        if not is_number or (isinstance(score, float) and not math.isfinite(score)):
            raise UnusableReply(f'the "score" of "{name}" is not a number from 0 to 1')
        if not 0 <= score <= 1:
            # The number may have hundreds of digits.
            raise UnusableReply(f'the "score" of "{name}" is {score!r:.20}, not from 0 to 1')
        score = float(score)
    # Some models write a single quote, or objects with a `quote` in them.
    evidence = given.get("evidence")
    listed = evidence if isinstance(evidence, list) else [] if evidence is None else [evidence]
    quotes = [
        each.get("quote", each) if isinstance(each, dict) else each for each in listed[:_MAX_QUOTES]
    ]
    return Opinion(
        score,
        _truncate_reply_text(reason.strip()),
        tuple(_truncate_reply_text(str(quote)) for quote in quotes),
    )


def _truncate_reply_text(text: str) -> str:
    # JSON can escape one half of an emoji, which no record can hold.
    text = replace_lone_surrogates(text)
    return text if len(text) <= _MAX_REPLY_TEXT else f"{text[:_MAX_REPLY_TEXT]}…"
