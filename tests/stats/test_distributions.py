"""The distributions agree with scipy's, from one sample to a million."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import bdtr, betainc, betaincinv, stdtrit

from assay.stats.distributions import (
    compute_beta_cdf,
    compute_beta_quantile,
    compute_binomial_cdf,
    compute_student_quantile,
)

LEVELS = (0.0005, 0.005, 0.025, 0.05, 0.5, 0.95, 0.975, 0.995, 0.9995)
SIZES = (1, 2, 5, 30, 100, 101, 1000, 50_000, 1_000_000)
SHARES = (0.0, 0.001, 0.25, 0.5, 0.8, 0.999, 1.0)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("level", LEVELS)
def test_quantiles_of_the_beta_distribution_are_those_of_scipy(n: int, level: float) -> None:
    for share in SHARES:
        a, b = share * n + 1, n - share * n + 0.5

        found = compute_beta_quantile(level, a, b)

        assert found == pytest.approx(float(betaincinv(a, b, level)), rel=1e-9)
        assert compute_beta_cdf(found, a, b) == pytest.approx(level, rel=1e-7)


@pytest.mark.parametrize("b", [1, 20, 1000])
def test_a_quantile_may_be_the_smallest_number_or_nearly_one(b: int) -> None:
    assert compute_beta_quantile(0.025, 1e-8, b) == 0.0
    assert compute_beta_quantile(0.025, 0.1, b) == pytest.approx(float(betaincinv(0.1, b, 0.025)))
    assert compute_beta_quantile(0.975, b, 1e-8) == pytest.approx(1.0, abs=1e-12)


@settings(max_examples=300, deadline=None)
@given(st.floats(0.01, 1e5), st.floats(0.01, 1e5), st.floats(1e-300, 1))
def test_chances_of_the_beta_distribution_are_those_of_scipy(a: float, b: float, x: float) -> None:
    assert compute_beta_cdf(x, a, b) == pytest.approx(float(betainc(a, b, x)), rel=1e-8, abs=1e-12)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("share", [0.001, 0.25, 0.5, 0.8, 0.999])
def test_chances_of_the_binomial_distribution_are_those_of_scipy(n: int, share: float) -> None:
    for count in {0, n // 4, int(share * n), n - 1, n}:
        expected = float(bdtr(count, n, share))

        assert compute_binomial_cdf(count, n, share) == pytest.approx(expected, rel=1e-7, abs=1e-12)


def test_chances_of_fair_coins_are_exact() -> None:
    assert compute_binomial_cdf(0, 5, 0.5) == 1 / 32
    assert compute_binomial_cdf(1, 10, 0.5) == 11 / 1024


@pytest.mark.parametrize("freedom", [1, 2, 29, 1000, 1_000_000])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.975, 0.9995])
def test_quantiles_of_students_t_are_those_of_scipy(freedom: int, level: float) -> None:
    expected = float(stdtrit(freedom, level))

    assert compute_student_quantile(level, freedom) == pytest.approx(expected, rel=1e-7)
