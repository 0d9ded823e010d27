"""Curves: values become places, gaps stay gaps, and texts are escaped."""

import re

from assay.web.curves import CurvePoint, draw_curve, draw_difference, draw_trend


def test_a_curve_has_a_band_a_threshold_and_marks() -> None:
    points = [
        CurvePoint(0.5, 0.4, 0.6, name="a", link="/x", title="first"),
        CurvePoint(0.9, 0.8, 1.0, name="b", link="/y?z=1&w=2", title="second", mark="better"),
    ]

    svg = draw_curve(points, label="Score", threshold=0.7)

    assert 'class="area"' in svg
    assert 'class="gate"' in svg
    assert "threshold 0.700" in svg
    assert 'class="mark better"' in svg
    assert 'href="/y?z=1&amp;w=2"' in svg
    assert 'role="group"' in svg


def test_the_threshold_is_missed_if_the_last_value_is_below() -> None:
    points = [CurvePoint(0.5)]

    assert 'class="gate missed"' in draw_curve(points, label="Score", threshold=0.7)
    assert 'class="gate"' in draw_curve(points, label="Score", threshold=0.7, low_is_good=True)


def test_unknown_values_leave_a_gap() -> None:
    values = (0.1, 0.2, None, 0.4, 0.5)

    svg = draw_curve([CurvePoint(value) for value in values], label="KL")

    assert svg.count("<polyline") == 2
    assert svg.count("<circle") == 4


def test_a_curve_without_values_is_empty() -> None:
    assert draw_curve([CurvePoint(None), CurvePoint(float("nan"))], label="KL") == ""


def test_equal_and_single_values_can_be_drawn() -> None:
    assert "<circle" in draw_curve([CurvePoint(0.0)], label="x")
    assert "<polyline" in draw_curve([CurvePoint(3.0), CurvePoint(3.0)], label="x")


def test_the_axis_has_round_numbers() -> None:
    svg = draw_curve([CurvePoint(0.03), CurvePoint(0.97)], label="x")

    assert re.findall(r">([\d.]+)</text>", svg) == ["0", "0.25", "0.5", "0.75", "1"]


def test_a_long_curve_has_no_dots() -> None:
    svg = draw_curve([CurvePoint(float(index)) for index in range(500)], label="x")

    assert "<circle" not in svg


def test_texts_are_escaped() -> None:
    hostile = '"><script>alert(1)</script>'
    point = CurvePoint(1.0, name=hostile, title=hostile, link=hostile)

    assert "<script" not in draw_curve([point], label=hostile)


def test_a_difference_is_drawn_around_zero() -> None:
    svg = draw_difference(0.1, -0.1, 0.3)

    assert 'aria-label="difference +0.100, interval -0.100 to +0.300"' in svg
    assert draw_difference(None, None, None) == ""


def test_a_trend_needs_two_values() -> None:
    assert draw_trend([0.5, None]) == ""
    assert "<polyline" in draw_trend([0.5, None, 0.5])
