"""Charts: numbers where they belong, text escaped, nothing for the unknown."""

import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from assay.web.charts import (
    draw_bars,
    draw_element,
    draw_interval,
    draw_meter,
    draw_spark,
    draw_steps,
)


def test_the_mean_is_a_dot_on_its_interval() -> None:
    picture = ElementTree.fromstring(draw_interval(0.5, 0.25, 0.75, scale=(0, 1), threshold=0.9))

    dot = picture.find("circle")
    band = picture.find("line[@class='band']")
    gate = picture.find("line[@class='gate missed']")
    assert dot is not None
    assert band is not None
    assert gate is not None
    assert (dot.get("cx"), band.get("x1"), band.get("x2")) == ("200", "105", "295")
    assert gate.get("x1") == "352"
    assert picture.get("aria-label") == "score 0.500, interval 0.250 to 0.750, threshold 0.900"


def test_a_threshold_that_is_met_looks_different() -> None:
    assert 'class="gate"' in draw_spark(0.9, None, None, scale=(0, 1), threshold=0.5)


@pytest.mark.parametrize("draw", [draw_interval, draw_spark])
def test_where_low_scores_are_good_a_mean_below_the_threshold_is_not_missed(draw: Any) -> None:
    for mean, state in ((0.2, "gate"), (0.4, "gate missed")):
        svg = draw(mean, None, None, scale=(0, 1), threshold=0.3, low_is_good=True)

        assert f'class="{state}"' in svg


@pytest.mark.parametrize("draw", [draw_interval, draw_spark])
def test_an_unknown_mean_draws_nothing(draw: object) -> None:
    assert callable(draw)
    assert draw(None, None, None, scale=(0, 1)) == ""


def test_a_scale_without_width_is_drawn() -> None:
    picture = ElementTree.fromstring(draw_interval(2.0, None, None, scale=(2.0, 2.0)))

    assert picture.find(".//circle") is not None


def test_small_bins_stay_visible() -> None:
    picture = ElementTree.fromstring(draw_bars([1, 0, 100_000], first=0, last=1, label="scores"))

    heights = [float(each.get("height") or 0) for each in picture.findall("rect")]
    assert heights == [1.5, 0.0, 30.0]
    assert (
        draw_bars([], first=0, last=1, label="") == draw_bars([0], first=0, last=1, label="") == ""
    )


def test_a_meter_is_drawn_within_its_range_only() -> None:
    assert "<svg" in draw_meter(0.5)
    assert draw_meter(None) == draw_meter(-1) == draw_meter(2.0) == draw_meter(1, high=0) == ""


def test_text_and_attributes_are_escaped() -> None:
    assert draw_element("text", '<b> "x" & y', class_='a"><script>', stroke_width=1.50) == (
        '<text class="a&#34;&gt;&lt;script&gt;" stroke-width="1.5">'
        "&lt;b&gt; &#34;x&#34; &amp; y</text>"
    )


def test_each_reward_of_an_episode_is_a_bar() -> None:
    chart = draw_steps([1.0, -0.5, None, 0.0])

    assert chart.count("<rect") == 4
    assert "step 3: reward unknown" in chart
    assert 'aria-label="rewards of 4 steps"' in chart
    assert "style=" not in chart


def test_rewards_of_many_steps_are_added_up() -> None:
    chart = draw_steps([1.0] * 10_000)

    assert chart.count("<rect") == 80
    assert "steps 1 to 125: reward 125.000" in chart


def test_an_episode_without_steps_is_no_picture() -> None:
    assert draw_steps([]) == ""
