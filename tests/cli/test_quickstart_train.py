"""What a lesson concludes from its two comparisons, and the curve in a terminal."""

import pytest

from assay.cli.quickstart_train import explain_comparisons, format_reward_curve
from assay.stats import Comparison, compare
from made_results import run


def compared(after: float) -> Comparison:
    return compare(run(*[0.5] * 20), run(*[after] * 20))


BETTER, SAME, WORSE = compared(1.0), compared(0.5), compared(0.0)
FEW = compare(run(0.0), run(1.0))


@pytest.mark.parametrize(
    ("sampled", "greedy", "words"),
    [
        (BETTER, BETTER, "This model learned, as unseen sums show"),
        (SAME, BETTER, "This model learned, as unseen sums show"),
        (BETTER, SAME, "This shows sharpening"),
        (BETTER, WORSE, "greedy ones are right less often. This shows sharpening"),
        (SAME, SAME, "This does not show that the model learned"),
        (WORSE, WORSE, "right less often. This does not show that the model learned"),
        (FEW, FEW, "This does not show that the model learned"),
    ],
)
def test_the_likeliest_answers_tell_learning_from_sharpening(
    sampled: Comparison, greedy: Comparison, words: str
) -> None:
    assert words in explain_comparisons(sampled, greedy)


def test_the_curve_goes_from_the_lowest_block_to_the_highest() -> None:
    assert format_reward_curve([0.0, 0.5, 1.0], "_-#") == "_-# 0.00 to 1.00"


def test_a_long_curve_is_made_of_means_that_fit_a_line() -> None:
    line = format_reward_curve([0.0] * 300 + [1.0] * 300, "_#")

    assert line == "_" * 25 + "#" * 25 + " 0.00 to 1.00"
