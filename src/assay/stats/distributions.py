"""The beta, binomial and Student distributions, as far as intervals and tests need them.

In plain Python: importing scipy takes longer than a command that reads a run may take, and one
interval needs a handful of values. The tests compare every function with scipy's.
"""

import math

# Enough for a million samples: the continued fraction takes about the root of the parameters.
_MAX_TERMS = 100_000
_PRECISION = 1e-16
_TINY = 1e-300
# Up to this many trials the terms of a binomial distribution are added one by one.
_MOST_SUMMED = 100


def compute_beta_cdf(x: float, a: float, b: float) -> float:
    """Return the chance of at most `x`: the regularized incomplete beta function."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        # The continued fraction converges slowly above the mean; the mirrored one is below it.
        return 1 - compute_beta_cdf(1 - x, b, a)
    # Lentz's method: `numerator` and `denominator` are ratios of successive convergents. They must
    # not become 0, hence the tiny number in its place.
    numerator, denominator = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or _TINY)
    fraction = denominator
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        step = 1.0
        for term in (even, odd):
            denominator = 1 / ((1 + term * denominator) or _TINY)
            numerator = (1 + term / numerator) or _TINY
            step *= numerator * denominator
        fraction *= step
        if abs(step - 1) <= _PRECISION:
            break
    return _compute_weight(x, a, b) * fraction / a


def _compute_weight(x: float, a: float, b: float) -> float:
    """Return the density at `x`, times x (1 - x)."""
    # By logarithms: the gamma function of 200 overflows a float.
    ways = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(ways + a * math.log(x) + b * math.log1p(-x))


def compute_beta_quantile(level: float, a: float, b: float) -> float:
    """Return the number that a beta variable is at most with a chance of `level`."""
    low, high = 0.0, 1.0
    x = a / (a + b)
    if a < 1:
        # Close to 0 the chance is a power of x: without this start the search would have to halve
        # its way down to the smallest floats.
        ways = math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
        x = min(x, math.exp(min((math.log(level * a) + ways) / a, 0.0)))
        if x < _TINY:
            return 0.0
    # Newton's method, kept between the two limits that every step narrows.
    for _ in range(200):
        error = compute_beta_cdf(x, a, b) - level
        low, high = (x, high) if error < 0 else (low, x)
        # Far out in a tail the slope is 0 in floats; the step then leaves the limits.
        slope = _compute_weight(x, a, b) / (x * (1 - x))
        following = x - error / max(slope, _TINY)
        if not low < following < high:
            following = (low + high) / 2
        if abs(following - x) <= 4 * _PRECISION * x:
            break
        x = following
    return x


def compute_student_quantile(level: float, freedom: int) -> float:
    """Return the quantile of Student's t for a `level` above one half."""
    # t**2 / (freedom + t**2) has a beta distribution.
    x = compute_beta_quantile(2 * level - 1, 0.5, freedom / 2)
    return math.sqrt(freedom * x / (1 - x))


def compute_binomial_cdf(count: int, n: int, share: float) -> float:
    """Return the chance of at most `count` successes in `n` trials."""
    if count >= n:
        return 1.0
    if n > _MOST_SUMMED:
        return compute_beta_cdf(1 - share, n - count, count + 1)
    # Exact for a share of one half, where p-values are compared with levels such as 1/32.
    chances = (math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(count + 1))
    return math.fsum(chances)
