"""The metrics of two runs: each compared, p-values for all of them together, memory bounded."""

from collections.abc import Sequence

import pytest

from assay.errors import ConfigError
from assay.stats import Comparison, compare
from assay.stats.sample_pairs import PairedMetrics
from made_results import Result


def measured(**metrics: Sequence[float | None]) -> list[Result]:
    """One sample for each value, all with a score of 1."""
    count = max(map(len, metrics.values()))
    return [
        Result(f"s{n}", 1.0, metrics={name: values[n] for name, values in metrics.items()})
        for n in range(count)
    ]


def test_each_metric_is_compared_with_p_values_adjusted_for_all() -> None:
    before = measured(tone=[1.0] * 10, length=[0.5] * 10, same=[0.5] * 10)
    after = measured(tone=[0.0] * 8 + [1.0] * 2, length=[0.75] * 7 + [0.5] * 3, same=[0.5] * 10)

    found = compare(before, after).metrics

    assert list(found) == ["length", "same", "tone"]
    assert found["tone"].p_value == pytest.approx(2 / 2**8)
    assert found["tone"].adjusted_p == pytest.approx(3 * 2 / 2**8)
    assert found["length"].p_value == pytest.approx(2 / 2**7)
    assert found["length"].adjusted_p == pytest.approx(2 * 2 / 2**7)
    assert (found["same"].p_value, found["same"].adjusted_p) == (1.0, 1.0)
    assert found["tone"].conclusion == "lower"
    assert found["length"].conclusion == "higher"
    assert found["same"].conclusion == "no difference shown"
    assert (found["tone"].mean_a, found["tone"].mean_b, found["tone"].pairs) == (1.0, 0.2, 10)


def test_a_metric_that_only_its_own_p_value_would_show_is_not_called_anything() -> None:
    names = [f"m{n}" for n in range(5)]
    before = measured(**{name: [1.0] * 6 for name in names})
    after = measured(**{name: [0.0 if name == "m0" else 1.0] * 6 for name in names})

    found = compare(before, after).metrics["m0"]

    assert found.p_value == pytest.approx(0.03125)
    assert found.adjusted_p == pytest.approx(5 * 0.03125)
    assert found.conclusion == "no difference shown"


def test_the_verdict_is_that_of_the_score() -> None:
    found = compare(measured(tone=[1.0] * 10), measured(tone=[0.0] * 10))

    assert found.metrics["tone"].conclusion == "lower"
    assert str(found.conclusion) == "no difference shown"


def test_the_lines_of_metrics_have_both_p_values() -> None:
    before = measured(tone=[1.0] * 10, gone=[1.0] * 10)
    after = measured(tone=[0.0] * 8 + [1.0] * 2, **{"\x1b[2Jnew": [1.0] * 10})

    lines = compare(before, after).lines()

    place = lines.index("metrics (1), p adjusted by Holm's method")
    assert lines[place + 1 : place + 3] == [
        "  tone                     -0.800 [-0.975, -0.329], lower (p = 0.0078, adjusted",
        "                           0.0078)",
    ]
    assert lines[place + 3].startswith("metrics in one run only: ")
    assert "gone" in lines[place + 3]
    assert not any("\x1b" in line for line in lines)
    assert max(map(len, lines)) <= 80


def test_a_metric_is_compared_over_the_samples_that_have_it() -> None:
    before = [
        *measured(tone=[1.0, None, 0.5]),
        Result("s3", None, valid=False, metrics={"tone": 1.0}),
    ]
    after = measured(tone=[0.5, 1.0, 0.5, 1.0])

    found = compare(before, after).metrics["tone"]

    assert (found.pairs, found.conclusion) == (2, "too few to tell")


def test_a_metric_that_is_no_number_is_refused() -> None:
    with pytest.raises(ConfigError, match="metric 'tone' is nan"):
        compare(measured(tone=[float("nan")]), measured(tone=[1.0]))


def test_names_are_bounded_and_what_is_left_out_is_counted() -> None:
    many = {f"m{n:03}": [1.0] for n in range(60)}

    found = compare(measured(**many), measured(**many))

    assert len(found.metrics) == PairedMetrics.MOST_NAMES == 50
    assert found.metrics_left_out == 10
    assert "metrics not compared: 10 values more than are kept" in found.lines()


def test_too_many_values_are_not_compared_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PairedMetrics, "MOST_VALUES", 30)
    runs = measured(tone=[1.0] * 20)

    found = compare(runs, runs)

    assert found.metrics == {}
    assert found.metrics_unpaired == ()
    assert found.metrics_left_out == 40


def test_metrics_survive_json() -> None:
    found = compare(measured(tone=[1.0] * 8), measured(tone=[0.0] * 8))

    assert Comparison.model_validate_json(found.model_dump_json()) == found
