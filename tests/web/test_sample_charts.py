"""The timeline of steps: a bar for each reward, sums of many, and a text for readers."""

from assay.web.sample_charts import draw_steps


def test_each_reward_is_a_bar() -> None:
    chart = draw_steps([1.0, -0.5, None, 0.0])

    assert chart.count("<rect") == 4
    assert "step 3: reward unknown" in chart
    assert 'aria-label="rewards of 4 steps"' in chart
    assert "style=" not in chart


def test_many_steps_are_added_up() -> None:
    chart = draw_steps([1.0] * 10_000)

    assert chart.count("<rect") == 80
    assert "steps 1 to 125: reward 125.000" in chart


def test_no_steps_are_no_picture() -> None:
    assert draw_steps([]) == ""
