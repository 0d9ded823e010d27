"""When a score reaches a threshold."""

from assay.types import reaches_threshold


def test_rounding_of_a_mean_does_not_miss_a_threshold() -> None:
    mean = (0.6 + 0.7) / 2

    assert mean < 0.65
    assert reaches_threshold(mean, 0.65)
    assert not reaches_threshold(0.6499, 0.65)


def test_where_low_scores_are_good_a_score_above_the_threshold_misses_it() -> None:
    assert reaches_threshold(0.1 + 0.2, 0.3, low_is_good=True)
    assert not reaches_threshold(0.3001, 0.3, low_is_good=True)
