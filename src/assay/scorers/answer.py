"""Scorers that compare a final answer with the one that is known. No model calls, no I/O."""

import math
import re
from collections.abc import Callable

from assay.errors import ConfigError
from assay.types import EvaluateResult, Sample

from .normalize import NormalizedAnswer, is_close, list_numbers, normalize_answer, normalize_number
from .scorer_type import Scorer

# "The answer is", "Answer:", "the correct option is", and "Final answer" as a heading of its own.
_ANSWER_PHRASE = re.compile(
    r"\b(?:answer|(?:correct|right|best)\s(?:option|choice))\b[*`\"]*\s*(?:is\b|:|=)[:*`]*\s*"
    r"|^[ \t#*_]{0,12}(?:final\s)?answer[ \t*_]{0,12}\n\s*",
    re.IGNORECASE | re.MULTILINE,
)
# Up to the next tag of its kind: an answer may contain other ones, and "<".
_ANSWER_TAG = re.compile(
    r"<answer>(?P<content>(?:(?!</?answer>).)*)</answer>", re.IGNORECASE | re.DOTALL
)
_SENTENCE_END = re.compile(r"[.!?](?=\s)")
# Where the explanation of an answer begins: "42, since 40 + 2 is 42".
_EXPLANATION = re.compile(r"[;(]|,\s|\b(?:because|since)\b")
# The letter of one option with its text or a reason: "(B) 42 km", "B. 42 km", "B, because of it".
_OPTION = re.compile(
    r"\(?\b(?P<letter>[a-j])\**(?:(?:\)?[.:]|\))\**(?=\s|$)|\)?\**(?:\s-|,?\s(?:because|since))\s)"
)
_OPTION_WORD = re.compile(r"(?:option|choice)\s\**")
_DENIAL = re.compile(r"[\s*_]*not\b", re.IGNORECASE)
_ANSWER_MARK = re.compile(r"^[ \t]*####(?!#)(?P<content>.*)", re.MULTILINE)
_BOX = re.compile(r"\\(?:boxed|fbox)\s?\{")
# Reasons are stored with every result: a long answer must not be stored twice.
_LONGEST_QUOTE = 120


def exact_answer(*, extract: Callable[[str], str | None] | None = None) -> Scorer:
    r"""Score 1.0 when the response's final answer is the ground truth, else 0.0.

    The final answer is the content of the last `\boxed{...}`, else of the last
    `<answer>...</answer>`, else the text after `####` on the last line or a number after the last
    `####`, else the text after the last "answer is", "answer:", "correct option is" or heading
    "Answer", else the whole response.
    `extract` replaces these rules; where it returns None the sample scores 0.0. There is one final
    answer and it must be equal as a whole, so listing every candidate scores nothing.

    Case, spacing, quotes, closing punctuation and the layout of LaTeX do not count; an answer of
    spacing only is empty. Numbers are compared as numbers: "$29.00" is 29 and "1,000" is 1000.
    A percent or degree sign is a unit like a currency sign: "50%" is 50 and is not 0.5. Digits
    after a leading zero are a code: "007" is not 7. Where the ground truth is the letter of an
    option, the word "option" may come before it, and the text of the option or "because" and a
    reason after it. The intervals "(1, 2)" and "[1, 2]" differ; "1, 2" equals both. Reasoning in
    `<think>` is not part of the answer, also where it was cut off.

    The ground truth is a text, a number, or a list of accepted ones. A sample without one, or
    without any turn by the assistant, is not judged.
    """
    if extract is not None and not callable(extract):
        raise ConfigError(
            f"`extract` is {extract!r}, which cannot be called",
            where="exact_answer()",
            hint="pass a function from the response to its final answer, or omit it",
        )

    def score(sample: Sample) -> EvaluateResult:
        accepted = _list_accepted_answers(sample.ground_truth)
        if isinstance(accepted, str):
            return EvaluateResult(is_score_valid=False, reason=accepted)
        if not any(message.role == "assistant" for message in sample.messages):
            return EvaluateResult(is_score_valid=False, reason="no turn by the assistant")
        readings = _extract_readings(sample.response, extract)
        answers = [normalize_answer(reading) for reading in readings]
        if not any(answer.text for answer in answers):
            return EvaluateResult(score=0.0, reason="the response gives no answer")
        for reading, answer in zip(readings, answers, strict=True):
            for known in accepted:
                if isinstance(known, float):
                    # A float is rarely equal to the decimal that a response writes: 0.1 + 0.2 is
                    # not 0.3.
                    same = is_close(answer, known)
                elif isinstance(known, int):
                    same = answer.same_as(normalize_number(known))
                else:
                    same = answer.same_as(normalize_answer(known)) or _names_option(answer, known)
                    if extract is extract_number:
                        same = same or answer.same_as(_read_only_number(known))
                if same:
                    shown = f"{_quote_answer(reading)} is the expected {_quote_answer(known)}"
                    return EvaluateResult(score=1.0, reason=f"answer {shown}")
        expected = " or ".join(_quote_answer(each) for each in accepted[:3])
        expected += f" or {len(accepted) - 3} more" if len(accepted) > 3 else ""
        reason = f"answer {_quote_answer(readings[0])} is not the expected {expected}"
        return EvaluateResult(score=0.0, reason=reason)

    return score


def extract_number(response: str) -> str | None:
    r"""Return the number that a response gives as its answer, or None; for `exact_answer`.

    It is the number in the final answer that `exact_answer` finds: boxed, in a tag, after `####`,
    or in the sentence with the last "answer is" or "answer:". Otherwise it is the last number of
    the response. Units, currency signs, separators of thousands and markup do not count:
    "$1,234.50" and "1.234,50 km/h" are 1234.5. Fractions such as "1/2" and `\frac{1}{2}` are 0.5.
    A part of `\sqrt{3}`, `2^{10}` or `2\pi` does not count, and "the answer is not 5" has none.
    """
    visible = remove_thoughts(response)
    if marked := _find_marked_answer(visible):
        # The shorter reading: what follows the sentence explains it.
        sentence = marked[-1]
        claim = _EXPLANATION.split(sentence, maxsplit=1)[0]
        if _DENIAL.match(claim):
            return None
        sides = re.split("[=≈]", claim)
        # "6 * 7 = 42" and "42 = 6 * 7" are 42: the last side with a single number.
        for side in reversed(sides):
            if len(numbers := list_numbers(side)) == 1:
                return numbers[0]
        for text in (sides[-1], claim, sentence):
            if numbers := list_numbers(text):
                return numbers[0]
    numbers = list_numbers(visible)
    return numbers[-1] if numbers else None


def remove_thoughts(response: str) -> str:
    """Return a response without the reasoning that a server left in its text.

    It is empty where the reasoning was cut off before its end.
    """
    visible = response.rpartition("</think>")[2].strip()
    return "" if visible.startswith("<think>") else visible


def _read_only_number(known: str) -> NormalizedAnswer:
    """Return the number of a ground truth such as "1/2" or "5 km"; empty without a single one."""
    numbers = list_numbers(known)
    return normalize_answer(numbers[0] if len(numbers) == 1 else "")


def _names_option(answer: NormalizedAnswer, known: str) -> bool:
    """Whether an answer is one option, by its letter and its text, and this letter is known."""
    letter, named = normalize_answer(known).text, _OPTION_WORD.match(answer.text)
    text = answer.text[named.end() :] if named else answer.text
    if len(letter) == 1 and text == letter:
        return True
    options = list(_OPTION.finditer(text))
    return len(options) == 1 and options[0].start() == 0 and options[0]["letter"] == letter


def _list_accepted_answers(ground_truth: object) -> list[str | int | float] | str:
    """The answers that count as right, or why there are none."""
    if ground_truth is None:
        return "no ground truth"
    values = ground_truth if isinstance(ground_truth, list | tuple) else [ground_truth]
    accepted: list[str | int | float] = []
    for value in values:
        if isinstance(value, bool):
            # Before the numbers: a bool is an int, and True must not accept "1".
            accepted.append(str(value))
        elif not isinstance(value, str | int | float):
            return (
                f"ground truth contains {type(value).__name__} {_quote_answer(value)}, "
                "not an answer"
            )
        elif isinstance(value, float) and not math.isfinite(value):
            return f"ground truth {value} is not a number"
        elif isinstance(value, str) and not normalize_answer(value).text:
            return "ground truth is empty"
        elif isinstance(value, str):
            # Datasets of worked solutions mark their answer the way responses do.
            accepted.extend(_find_marked_answer(value) or (value,))
        else:
            accepted.append(value)
    return accepted or "ground truth is an empty list"


def _extract_readings(
    response: str, extract: Callable[[str], str | None] | None
) -> tuple[str, ...]:
    """Return the final answer of a response; two readings where it may end at a full stop."""
    if extract is None:
        visible = remove_thoughts(response)
        return _find_marked_answer(visible) or ((visible,) if visible else ())
    answer = extract(response)
    if answer is None:
        return ()
    if not isinstance(answer, str):
        raise ConfigError(
            f"`extract` returned {type(answer).__name__} {_quote_answer(answer)}",
            where="exact_answer()",
            hint="return the answer as a string, or None when there is none",
        )
    return (answer,)


def _find_marked_answer(text: str) -> tuple[str, ...]:
    """Return the answer that a text marks as its answer; empty when none is marked."""
    if normalize_answer(boxed := _find_last_boxed(text)).text:
        return (boxed,)
    tags = [match["content"].strip() for match in _ANSWER_TAG.finditer(text)]
    if tags and tags[-1]:
        return (tags[-1],)
    *_, marked = (None, *_ANSWER_MARK.finditer(text))
    if marked and (content := marked["content"].strip()):
        # Above other lines only a number is an answer: "#### Step 1" is a heading.
        is_last = not text[marked.end() :].strip()
        if is_last or normalize_answer(content).number is not None:
            return (content,)
    ends = [match.end() for match in _ANSWER_PHRASE.finditer(text)]
    line = text[ends[-1] :].partition("\n")[0] if ends else ""
    # "The answer is 12. I checked it." is 12, but "the answer is Dr. Smith" needs the whole line.
    sentence = _SENTENCE_END.split(line, maxsplit=1)[0]
    return tuple(dict.fromkeys(reading for reading in (line, sentence) if reading))


def _find_last_boxed(text: str) -> str:
    """Return the content of the last `\\boxed{...}`; "" when it is missing or never closed."""
    # Braces are counted: a regular expression cannot match \boxed{\frac{1}{2}}.
    boxes = list(_BOX.finditer(text))
    if not boxes:
        return ""
    start = boxes[-1].end()
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            # Not stripped: a space after a backslash is a command.
            return text[start:position]
    return ""


def _quote_answer(value: object) -> str:
    shown = repr(value.strip() if isinstance(value, str) else value)
    return shown if len(shown) <= _LONGEST_QUOTE else f"{shown[:_LONGEST_QUOTE]}…"
