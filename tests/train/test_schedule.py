"""The learning rate: up through the warm-up, then by its curve."""

import pytest

from assay.train.schedule import Schedule, compute_learning_rate


@pytest.mark.parametrize(
    ("schedule", "warmup", "rates"),
    [
        ("constant", 0, [1.0, 1.0, 1.0, 1.0]),
        ("constant", 2, [0.333, 0.667, 1.0, 1.0]),
        ("linear", 0, [1.0, 0.75, 0.5, 0.25]),
        ("linear", 1, [0.5, 1.0, 0.667, 0.333]),
        ("cosine", 0, [1.0, 0.854, 0.5, 0.146]),
        ("cosine", 4, [0.2, 0.4, 0.6, 0.8]),
    ],
)
def test_every_step_has_its_rate(schedule: Schedule, warmup: int, rates: list[float]) -> None:
    found = [
        compute_learning_rate(step, of=4, highest=1.0, schedule=schedule, warmup_steps=warmup)
        for step in range(1, 5)
    ]

    assert found == pytest.approx(rates, abs=1e-3)
