"""The reward curve: a picture that any browser shows, with nothing left out in silence."""

from xml.etree import ElementTree

import pytest

from assay.train.batches import RolloutGroup
from assay.train.curve import render_reward_curve
from assay.train.rollout_collector import StepRollouts
from assay.train.step_statistics import StepMetrics, Update, compute_step_metrics
from assay.types import EvaluateResult, Sample

SVG = "{http://www.w3.org/2000/svg}"


def step(number: int, reward: float | None) -> StepMetrics:
    sample = Sample(score=EvaluateResult(score=reward))
    collected = StepRollouts(
        [RolloutGroup((sample,))], position=0, seconds=1.0, found=0, resampled=0
    )
    return compute_step_metrics(number, collected, Update((), None, 0.1, 1.0))


def drawn(*rewards: float | None, title: str = "reward") -> ElementTree.Element:
    steps = [step(number, reward) for number, reward in enumerate(rewards, start=1)]
    return ElementTree.fromstring(render_reward_curve(steps, title=title))


def texts(picture: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


def test_a_step_is_a_point_and_better_is_higher() -> None:
    points = list(drawn(0.1, 0.5, 0.9).iter(f"{SVG}circle"))

    heights = [float(each.get("cy") or "nan") for each in points]
    assert heights == sorted(heights, reverse=True)
    assert [float(each.get("cx") or "nan") for each in points] == [64.0, 380.0, 696.0]


def test_rewards_of_a_share_are_drawn_from_zero_to_one() -> None:
    assert {"0", "0.2", "1"} <= set(texts(drawn(0.4, 0.5)))


@pytest.mark.parametrize(
    "rewards",
    [
        (5.0, -3.0, 2.0),
        (7.0, 7.0),
        (1e6, 2e6),
        (0.25,),
        (1e-7 + 2, 2.0),
        (7e38,),
        (-3e99, 3e99),
        (2.0, 2 + 1e-15),
    ],
)
def test_any_rewards_give_a_picture_with_a_scale(rewards: tuple[float, ...]) -> None:
    picture = drawn(*rewards)

    assert len(list(picture.iter(f"{SVG}circle"))) == len(rewards)
    assert len(list(picture.iter(f"{SVG}line"))) >= 2
    assert "nan" not in ElementTree.tostring(picture, "unicode").lower()


def test_steps_without_a_judged_rollout_are_counted() -> None:
    picture = drawn(0.5, None, None)

    assert len(list(picture.iter(f"{SVG}circle"))) == 1
    assert "2 steps without a judged rollout are not shown" in texts(picture)


def test_there_is_a_picture_of_nothing() -> None:
    assert texts(drawn()) == ["reward"]


def test_a_title_is_text_and_never_markup() -> None:
    assert "<script>alert(1)</script>" in texts(drawn(0.5, title="<script>alert(1)</script>"))


def test_the_line_is_the_mean_of_the_last_steps() -> None:
    steps = [step(number, reward) for number, reward in enumerate((0.0, 1.0), start=1)]

    picture = ElementTree.fromstring(render_reward_curve(steps, window=2))

    (line,) = picture.iter(f"{SVG}polyline")
    first, last = [float(pair.split(",")[1]) for pair in (line.get("points") or "").split()]
    bottom, top = 352.0, 44.0
    assert first == bottom
    assert last == (bottom + top) / 2
