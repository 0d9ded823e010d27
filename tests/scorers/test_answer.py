"""`exact_answer`: what counts as the final answer, what is right, and what is not judged."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import ConfigError
from assay.scorers import exact_answer, extract_number
from assay.types import EvaluateResult, Sample
from make import asked, said, sample


def answered(response: str, ground_truth: Any) -> Sample:
    # With an id of its own, a sample takes a ground truth that could not be hashed into one.
    return sample(asked("?"), said(response), id="one", ground_truth=ground_truth)


def judged(response: str, ground_truth: Any) -> EvaluateResult:
    return exact_answer()(answered(response, ground_truth))


RIGHT = {
    "whole": ("Paris", "paris"),
    "a sentence": ("The answer is Paris.", "Paris"),
    "a sentence that goes on": ("The answer is 29. I am sure.", 29),
    "an answer with a full stop in it": ("The answer is Dr. Smith", "Dr. Smith"),
    "a heading": ("We add.\n\n**Answer:** 29", "29"),
    "a heading of its own": ("Final answer:\n29", "29"),
    "marked": ("10 + 19 = 29\n#### $29.00", 29),
    "boxed": (r"So \(x = \boxed{1{,}000}\). Done.", 1000),
    "boxed, nested": (r"\boxed{\text{Paris}}", "Paris"),
    "boxed after a sentence": (r"The answer is $\boxed{29}$.", "29"),
    "corrected": ("The answer is 28. No: the answer is 29.", 29),
    "after thoughts": ("<think>Is it 28?</think>\n29", 29),
    "a heading is no marker": ("#### Step 1\nAdd.\nThe answer is 29", 29),
    "worked ground truth": ("29", "10 + 19 = <<10+19=29>>29\n#### 29"),
    "one of several": ("NYC", ["New York", "NYC"]),
    "one of several numbers": ("2.0", (1, 2)),
    "float": ("0.30", 0.1 + 0.2),
    "percent is a unit": ("50%", 50),
    "truth": ("True", True),
    "an option with its text": ("The answer is (B) 42 km.", "B"),
    "an option with its text, after a full stop": ("B. 42 km", "b"),
    "an option with a reason": ("The answer is B because A is too small.", "B"),
    "an option with its word": ("The answer is option B.", "B"),
    "an option with a reason after a comma": ("The answer is (B), because A is too small.", "B"),
    "an option in bold with its text": ("The answer is **B.** Lima", "B"),
    "an option in bold with its word": ("The correct answer is option **B**.", "B"),
    "an option with brackets and a colon": ("Option (B): 42 km", "B"),
    "an option with a dash": ("**B** - Lima. It is in Peru.", "B"),
    "a tag": ("I think of 3.\n<answer>B</answer>\nI am sure.", "B"),
    "marked above other lines": ("#### 42\nHope this helps!", 42),
    "a fraction of LaTeX": (r"\boxed{\dfrac{1}{2}}", "1/2"),
    "a short fraction of LaTeX": (r"\boxed{-\frac12}", "-1/2"),
    "thousands, with a space that does not break": ("1\u00a0234", 1234),
    "a box without a frame": (r"\fbox{29}", 29),
    "an empty box after a sentence": (r"The answer is 29. $\boxed{\,}$", 29),
    "a tag with other signs": ("<answer>5 < 6</answer>", "5 < 6"),
    "a tag with other tags": ("<answer>\n<b>x</b>\n</answer>", "<b>x</b>"),
    "a heading without a colon": ("**Final Answer**\n\n29", 29),
    "a correct option": ("So the correct option is (B).", "B"),
    "a fraction of a float": (r"\boxed{\frac{1}{3}}", 1 / 3),
    "price in LaTeX": (r"She pays 18. The answer is $\$18.00$.", 18),
}

WRONG = {
    "another": ("London", "Paris"),
    "two letters": ("B or A", "B"),
    "every option": ("option A, option B, option C", "B"),
    "every option, in bold": ("**A.** x **B.** y", "A"),
    "every option, before a reason": ("A, B, because of it", "B"),
    "every option, with reasons": ("B because of it. A because of it.", "B"),
    "another option, with a reason": ("The answer is A because B is too small.", "B"),
    "every answer, in tags": ("<answer>1</answer><answer>2</answer><answer>3</answer>", 2),
    "a marked number that is corrected": ("#### 42\nNo.\n#### 43\nDone.", 42),
    "a negative fraction without its sign": (r"\boxed{\frac{1}{2}}", r"-\frac{1}{2}"),
    "empty": ("", "Paris"),
    "blank": (" \n", "Paris"),
    "only thoughts": ("<think>Paris</think>", "Paris"),
    "thoughts that were cut off": ("<think>The answer is Paris. Or", "Paris"),
    "every answer": ("Paris, London, Rome", ["Paris", "London"]),
    "every answer, in a sentence": ("The answer is Paris or London", "Paris"),
    "every answer, marked": ("#### 1 2 3 4", 3),
    "every answer, boxed": (r"\boxed{1, 2, 3}", 2),
    "every answer, one by one": ("The answer is 1.\nThe answer is 2.\nThe answer is 3.", 2),
    "every answer, in boxes": (r"\boxed{1}\boxed{2}\boxed{3}", 2),
    "the question's words": ("You asked for Paris, I think", "Paris"),
    "denied": ("The answer is not 29", 29),
    "percent is no fraction": ("50%", 0.5),
    "a code": ("7", "007"),
    "one is not true": ("1", True),
    "no answer after all": ("Paris. The answer is", "Paris"),
    "an open box": (r"\boxed{29", 28),
    "two options": ("(A) 41 or (B) 42", "A"),
    "an option in a sentence": ("It is not (B) 42", "B"),
    "another option": ("(B) 42", "A"),
    "spacing": (r"\boxed{\,}", "29"),
    "spacing, as a formula": (r"$\ $", "29"),
    "an answer in the middle of a line": ("This answer\n29 is a number", 29),
    "every answer, in nested tags": ("<answer>1<answer>2<answer>3</answer>", 2),
    "options of a wrong one": ("The correct option is not B", "B"),
}


@pytest.mark.parametrize(("response", "ground_truth"), RIGHT.values(), ids=RIGHT)
def test_a_right_answer_scores_one(response: str, ground_truth: Any) -> None:
    result = judged(response, ground_truth)

    assert (result.score, result.is_score_valid) == (1.0, True), result.reason


@pytest.mark.parametrize(("response", "ground_truth"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_scores_zero(response: str, ground_truth: Any) -> None:
    result = judged(response, ground_truth)

    assert (result.score, result.is_score_valid) == (0.0, True), result.reason


@pytest.mark.parametrize(
    ("ground_truth", "reason"),
    [
        (None, "no ground truth"),
        ([], "ground truth is an empty list"),
        ("  ", "ground truth is empty"),
        (r"\boxed{\,}", "ground truth is empty"),
        (["a", r"$\ $"], "ground truth is empty"),
        (float("nan"), "ground truth nan is not a number"),
        ({"a": 1}, "ground truth contains dict {'a': 1}, not an answer"),
        (["a", None], "ground truth contains NoneType None, not an answer"),
    ],
)
def test_without_a_usable_ground_truth_a_sample_is_not_judged(
    ground_truth: Any, reason: str
) -> None:
    result = judged("Paris", ground_truth)

    assert (result.score, result.reward, result.reason) == (None, None, reason)


def test_without_a_turn_by_the_assistant_a_sample_is_not_judged() -> None:
    result = exact_answer()(Sample(prompt="Where?", ground_truth="Paris"))

    assert (result.score, result.reason) == (None, "no turn by the assistant")


def test_the_reason_quotes_both_sides() -> None:
    assert judged("#### 28", 29).reason == "answer '28' is not the expected 29"
    assert judged("$29", "29.0").reason == "answer '$29' is the expected '29.0'"
    assert judged("28", "10 + 19\n#### 29").reason == "answer '28' is not the expected '29'"
    assert judged("x", list("abcde")).reason == (
        "answer 'x' is not the expected 'a' or 'b' or 'c' or 2 more"
    )


@pytest.mark.parametrize("response", [r"\boxed{\,}", r"$\ $", "<answer>\\;</answer>", ""])
def test_a_response_of_spacing_gives_no_answer(response: str) -> None:
    assert judged(response, "29").reason == "the response gives no answer"


@pytest.mark.parametrize(
    ("response", "ground_truth"),
    [("1/2", "1/2"), (r"\boxed{\frac12}", "1/2"), ("0.5", r"\frac{1}{2}"), ("5 m", "5 km")],
)
def test_a_number_is_compared_with_the_number_of_the_ground_truth(
    response: str, ground_truth: str
) -> None:
    scorer = exact_answer(extract=extract_number)

    assert scorer(answered(response, ground_truth)).score == 1.0
    assert scorer(answered("7", ground_truth)).score == 0.0
    assert scorer(answered("4", "between 3 and 4")).score == 0.0


def test_a_long_answer_is_cut_visibly_in_the_reason() -> None:
    reason = judged("x" * 10_000, "y").reason

    assert reason is not None
    assert len(reason) < 200
    assert "x… is not" in reason


def test_extract_replaces_the_rules() -> None:
    scorer = exact_answer(extract=lambda response: response.partition("|")[0] or None)

    assert scorer(answered("Paris|The answer is London", "Paris")).score == 1.0
    assert scorer(answered("|Paris", "Paris")).reason == "the response gives no answer"
    assert scorer(answered("|Paris", "Paris")).score == 0.0


def test_an_extract_that_cannot_be_called_fails_when_the_scorer_is_made() -> None:
    with pytest.raises(ConfigError, match=r"exact_answer\(\): `extract` is '#'"):
        exact_answer(extract="#")  # type: ignore[arg-type]  # the mistake under test


def test_an_extract_that_returns_no_text_is_reported() -> None:
    scorer = exact_answer(extract=lambda _: 29)  # type: ignore[arg-type,return-value]  # same

    with pytest.raises(ConfigError, match="`extract` returned int 29"):
        scorer(answered("29", 29))


@pytest.mark.parametrize(
    "piece",
    [
        "<answer>",
        "answer\n",
        "\n# ",
        "answer ",
        "answer is ",
        "\\boxed{",
        "{",
        "#### ",
        "1,",
        "1.111",
        "1 ",
        "1/",
        ".*",
        "(",
    ],
)
def test_a_hostile_response_costs_little_time(piece: str) -> None:
    started = time.process_time()

    judged(piece * 50_000, "29")
    extract_number(piece * 50_000)

    assert time.process_time() - started < 5


@given(st.text(), st.text() | st.integers() | st.floats() | st.lists(st.text()))
def test_any_response_gets_a_result_with_a_reason(response: str, ground_truth: Any) -> None:
    result = judged(response, ground_truth)

    assert result.reason
    assert result.is_score_valid is (result.score in (0.0, 1.0))


NUMBERS = {
    "a negative fraction of LaTeX": (r"\boxed{-\frac{1}{2}}", "-0.5"),
    "a fraction of LaTeX without braces": (r"\boxed{\frac12}", "0.5"),
    "marked above other lines": ("#### 12\nHope this helps! See step 3.", "12"),
    "a heading above a number": ("#### Step 3\nWe get 12", "12"),
    "a tag": ("<answer>$42</answer> Checked in 3 ways.", "42"),
    "a field of JSON": ('{"answer": "42", "steps": 3}', "42"),
    "an equation from its result": ("Answer: 42 = 6 * 7", "42"),
    "a power of ten": ("1.5 × 10^3", "1.5e3"),
    "a power of ten of LaTeX": (r"\boxed{1.5 \times 10^{-3}}", "1.5e-3"),
    "thousands with an apostrophe": ("Answer: 1'234", "1234"),
    "thousands with a thin space": ("1\u2009234\u2009567 km", "1234567"),
    "thousands of LaTeX with a thin space": (r"1,\!234", "1234"),
    "bold with underscores": ("__42__", "42"),
    "currency": ("She pays $29.00", "29.00"),
    "currency of LaTeX": (r"\boxed{\$18}", "18"),
    "thousands": ("#### 1,234", "1234"),
    "thousands of LaTeX": (r"\boxed{1{,}234}", "1234"),
    "European separators": ("1.234,50 km", "1234.50"),
    "a decimal point": ("1.234", "1.234"),
    "a unit": ("He has 29 dollars left.", "29"),
    "a unit with a slash": (r"\boxed{12\text{ km/h}}", "12"),
    "a unit with a digit": ("The area is 12 m2, or 12 m^2", "12"),
    "boxed": (r"First 3, then 4. \boxed{42}", "42"),
    "marked": ("40 + 2 = 42\n#### 42", "42"),
    "a sentence amid other numbers": ("6 and 7. The answer is 42. I checked it 3 times.", "42"),
    "an equation": ("The answer is 6 * 7 = 42", "42"),
    "an explanation": ("Answer: 42, since 40 + 2 = 42", "42"),
    "an option": ("The answer is (B) 42", "42"),
    "a fraction": ("Answer: 1/2", "0.5"),
    "a mixed fraction": ("Answer: 2 1/2 cups", "2.5"),
    "a fraction of LaTeX": (r"\boxed{2\frac{1}{2}}", "2.5"),
    "a fraction without an end": ("Answer: 1/3", "1/3"),
    "percent": (r"\boxed{25\%}", "25"),
    "negative": ("The answer is **-3**.", "-3"),
    "negative, with a minus sign": ("\u22127", "-7"),
    "negative, in currency": ("-$5", "-5"),
    "a subtraction": ("We get 10 - 5", "5"),
    "bold": ("**42**", "42"),
    "a full stop": ("42.", "42"),
    "an ordinal": ("The 42 of the 3rd row", "42"),
    "after thoughts": ("<think>12</think> It is 13", "13"),
    "thoughts that were cut off": ("<think>The answer is 12", None),
    "a mention of thoughts": ("Inside <think> I found 12", "12"),
    "the last one": ("48 + 24 = 72 clips", "72"),
    "no number in the sentence": ("The answer is twenty, so 20.", "20"),
    "a code": ("Agent 007", None),
    "denied": ("The answer is not 5.", None),
    "denied, in bold": ("I tried 4. The answer is **not** 5", None),
    "a root": (r"\boxed{\sqrt{3}}", None),
    "a multiple of a root": (r"\boxed{2\sqrt 3}", None),
    "a root in words": ("The answer is sqrt(3)", None),
    "a higher root": (r"\boxed{\sqrt[3]{x}}", None),
    "a power": (r"\boxed{2^{10}}", None),
    "a negative power": (r"\boxed{10^{-3}}", None),
    "a short negative power": ("Answer: 2^-3", None),
    "a negative index": (r"\boxed{x_{-1}}", None),
    "a power of a decimal": (r"\boxed{2.5^2}", None),
    "a multiple of pi": (r"\boxed{12 \pi}", None),
    "a fraction of pi": (r"\boxed{\frac{\pi}{2}}", None),
    "a fraction with a variable": (r"\boxed{\frac{3}{x}}", None),
    "two values": (r"\boxed{\pm 5}", None),
    "a colored number": (r"\boxed{\color{blue}{42}}", "42"),
    "an index": (r"\boxed{x_{1}}", None),
    "the value of a power": (r"Answer: $2^{10} = 1024$", "1024"),
    "a unit with a power": (r"\boxed{5\text{ cm}^2}", "5"),
    "a word": ("twenty", None),
    "too long": ("1" * 1000, None),
}


@pytest.mark.parametrize(("response", "number"), NUMBERS.values(), ids=NUMBERS)
def test_extracts_the_number_that_is_the_answer(response: str, number: str | None) -> None:
    assert extract_number(response) == number


@pytest.mark.parametrize("response", ["1, 2, 3, 42", r"\boxed{1, 2, 42}", "#### 1 or 42"])
def test_of_several_numbers_one_is_the_answer(response: str) -> None:
    scorer = exact_answer(extract=extract_number)

    assert sum(scorer(answered(response, each)).score == 1.0 for each in (1, 2, 3, 42)) == 1
