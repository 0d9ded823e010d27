"""Intervals drawn over the range of scores."""

import pytest

from assay.stats import Interval, draw_svg_bar, draw_text_bar, find_score_range, summarise
from made_results import run

HALF = Interval(mean=0.5, low=0.3, high=0.7, n=20)


def test_a_text_bar_shows_interval_mean_and_threshold() -> None:
    bar = draw_text_bar(HALF, (0.0, 1.0), threshold=0.9, columns=11)

    assert bar == "0 ───[━●━]─┃─ 1  ┃ threshold 0.900"
    assert draw_text_bar(HALF, (0.0, 1.0), columns=11, ascii_only=True) == "0 ---[=o=]--- 1"


def test_what_is_unknown_or_off_the_scale_is_not_drawn() -> None:
    alone = Interval(mean=5.0, low=None, high=None, n=1)

    assert draw_text_bar(alone, (0.0, 10.0), threshold=11.0, columns=3) == "0 ─●─ 10"
    assert draw_text_bar(alone, (5.0, 5.0), columns=3) == "5 ─●─ 5"
    assert draw_text_bar(Interval(mean=None, low=None, high=None, n=0), (0.0, 1.0)) == ""
    assert draw_svg_bar(Interval(mean=None, low=None, high=None, n=0), (0.0, 1.0)) == ""


def test_svg_has_a_line_for_the_interval_and_one_for_the_threshold() -> None:
    drawn = draw_svg_bar(HALF, (0.0, 1.0), threshold=0.8)

    assert drawn.count("<line ") == 3
    assert "<title>0.500 [0.300, 0.700] 95 % confidence</title>" in drawn
    assert "crimson" not in draw_svg_bar(HALF, (0.0, 1.0), threshold=2.0)


@pytest.mark.parametrize(
    ("scores", "bounds", "scale"),
    [
        ([0.2, 0.4], None, (0.0, 1.0)),
        ([0.2, 0.4], (-1.0, 1.0), (-1.0, 1.0)),
        ([20.0, 40.0], None, (20.0, 40.0)),
        ([], None, (0.0, 1.0)),
    ],
)
def test_the_range_is_the_scale_of_the_run(
    scores: list[float], bounds: tuple[float, float] | None, scale: tuple[float, float]
) -> None:
    assert find_score_range(summarise(run(*scores), bounds=bounds)) == scale


def test_ends_and_thresholds_of_svg_are_short_numbers() -> None:
    drawn = draw_svg_bar(HALF, (-2 / 3, 2 / 3), threshold=0.0)

    assert [part.partition("<")[0] for part in drawn.split('">')[1:]][-3:] == [
        "0",
        "-0.667",
        "0.667",
    ]
    assert ">0.99<" not in draw_svg_bar(HALF, (0.0, 1.0), threshold=0.99)
