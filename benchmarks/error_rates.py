"""How often the statistics of assay err, by simulation.

    python benchmarks/error_rates.py [--quick] [--only NAME]

Prints how often an unchanged system is called worse, one test at a time and forty at once, how
often a difference of the size `detectable` is found, and how often intervals hold the truth. The
draws have fixed seeds. All of it takes about twenty minutes, `--quick` about four.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy
from numpy.typing import NDArray

from assay.scorers.judges.calibration import calibrate
from assay.stats import sign_flip_test
from assay.stats.multiplicity import adjust_p_values
from assay.stats.sample_pairs import PairedScores

Numbers = NDArray[numpy.float64]
Generator = numpy.random.Generator

ALPHA = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few draws of few cases")
    parser.add_argument("--only", choices=TABLES, help="one table")
    args = parser.parse_args()
    for name, print_table in TABLES.items():
        if args.only in (None, name):
            print_table(args.quick)
            print()


def draw_chances(generator: Generator, n: int, p: float, mixed: bool) -> Numbers:
    """How likely each sample succeeds: all alike, or easy and hard ones."""
    if not mixed:
        return numpy.full(n, p)
    return generator.beta(2 * p, 2 * (1 - p), n)


def draw_scores(generator: Generator, chances: Numbers, repeats: int) -> Numbers:
    return (generator.random((len(chances), repeats)) < chances[:, None]).astype(float)


def pair(a: Numbers, b: Numbers) -> PairedScores:
    scores = PairedScores()
    for of_a, of_b in zip(a.tolist(), b.tolist(), strict=True):
        scores.add(of_a, of_b)
    return scores


def is_worse(scores: PairedScores, seed: int) -> bool:
    p_value, mean_a, mean_b = scores.test(seed).p_value, scores.mean_a, scores.mean_b
    if p_value is None or mean_a is None or mean_b is None:
        return False
    return p_value <= ALPHA and mean_b < mean_a


def print_false_alarms(quick: bool) -> None:
    draws = 200 if quick else 500
    sizes = (10, 50) if quick else (10, 50, 200)
    print(f"An unchanged system called worse ({draws} draws; nominal 0.025), and the interval")
    print("of the difference that holds 0 (nominal 0.95)")
    print("  repeats    n     p  samples   flipped signs   assay   interval")
    rates = []
    for (a, b), n, p, mixed in product(
        ((1, 1), (1, 5), (1, 20), (20, 1), (5, 20)), sizes, (0.5, 0.9, 0.98), (False, True)
    ):
        generator = numpy.random.default_rng([a, b, n, int(100 * p), mixed])
        old = new = held = 0
        for seed in range(draws):
            chances = draw_chances(generator, n, p, mixed)
            scores = pair(draw_scores(generator, chances, a), draw_scores(generator, chances, b))
            flipped = sign_flip_test(scores.differences, seed=seed).p_value or 0.0
            old += flipped <= ALPHA and sum(scores.differences) < 0
            new += is_worse(scores, seed)
            interval = scores.interval(0.95, None)
            held += interval.low is not None and interval.low <= 0 <= (interval.high or 0)
        rates.append((new / draws, held / draws))
        kind = "mixed" if mixed else "alike"
        print(
            f"  {a:>2} vs {b:<3} {n:>3}  {p:.2f}  {kind:<8}"
            f" {old / draws:>13.3f}   {new / draws:>5.3f}   {held / draws:>8.3f}"
        )
    highest, lowest = max(rate for rate, _ in rates), min(held for _, held in rates)
    print(f"  highest rate of assay {highest:.3f}, lowest coverage {lowest:.3f}")


def print_sessions(quick: bool) -> None:
    draws, tests = (60 if quick else 300), 40
    print(f"Sessions of {tests} unchanged tests that fail ({draws} draws; promised: at most 0.05)")
    print("  repeats    n     p   each test for itself   assay   one of 40 fell by 0.5, found")
    for (a, b), n, p in product(((1, 1), (1, 5), (3, 3)), (20, 60), (0.8, 0.95)):
        generator = numpy.random.default_rng([a, b, n, int(100 * p)])
        alone = together = found = 0
        for seed in range(draws):
            runs = [_session_test(generator, n, p, p, (a, b)) for _ in range(tests)]
            alone += any(is_worse(run, seed) for run in runs)
            together += any(session_regressions(runs, seed))
            runs[0] = _session_test(generator, n, p, p - 0.5, (a, b))
            found += session_regressions(runs, seed)[0]
        print(
            f"  {a:>2} vs {b:<3} {n:>3}  {p:.2f}  {alone / draws:>21.3f}"
            f"   {together / draws:>5.3f}   {found / draws:>28.3f}"
        )


def _session_test(
    generator: Generator, n: int, before: float, after: float, repeats: tuple[int, int]
) -> PairedScores:
    chances = draw_chances(generator, n, before, mixed=True)
    return pair(
        draw_scores(generator, chances, repeats[0]),
        draw_scores(generator, chances * (after / before), repeats[1]),
    )


def session_regressions(runs: list[PairedScores], seed: int) -> list[bool]:
    """Which tests of a session are called worse, as the pytest plugin decides it."""
    p_values = [run.test(seed).p_value or 0.0 for run in runs]
    smallest = [min(1.0, 2 * 0.5**run.movable) for run in runs]
    adjusted = adjust_p_values(p_values, smallest=smallest)
    return [
        p_value <= ALPHA and sum(run.differences) < 0
        for run, p_value in zip(runs, adjusted, strict=True)
    ]


def print_power(quick: bool) -> None:
    draws = 200 if quick else 500
    print(f"A true fall of the size `detectable`, found ({draws} draws; promised: 0.80)")
    print("  scores      repeats    n     p   detectable   found")
    for name, repeats, n, p in _power_cases(quick):
        generator = numpy.random.default_rng([n, int(100 * p), *repeats])
        sizes, found, asked = [], 0, 0
        for seed in range(draws):
            unchanged = _draw_pair(generator, name, n, p, 0.0, repeats)
            size = unchanged.detectable(0.95)
            if size is None or (name == "0 and 1" and size >= p):
                continue
            sizes.append(size)
            fallen = _draw_pair(generator, name, n, p, size, repeats)
            asked += 1
            found += is_worse(fallen, seed)
        share = found / asked if asked else math.nan
        print(
            f"  {name:<11} {repeats[0]:>2} vs {repeats[1]:<3} {n:>3}  {p:.2f}"
            f"  {numpy.median(sizes):>11.3f}   {share:>5.2f}"
        )


def _power_cases(quick: bool) -> Iterator[tuple[str, tuple[int, int], int, float]]:
    sizes = (20, 100) if quick else (20, 50, 100, 200)
    for n, p in product(sizes, (0.5, 0.7, 0.9, 0.95)):
        yield "0 and 1", (1, 1), n, p
    for repeats, n, p in product(((5, 5), (1, 20), (20, 1)), (20, 100), (0.7, 0.9)):
        yield "0 and 1", repeats, n, p
    for n in sizes:
        yield "normal", (1, 1), n, 0.5
        yield "uniform", (1, 1), n, 0.5


def _draw_pair(
    generator: Generator, name: str, n: int, p: float, fall: float, repeats: tuple[int, int]
) -> PairedScores:
    if name == "0 and 1":
        chances = numpy.full(n, p)
        b = draw_scores(generator, chances - fall, repeats[1])
        return pair(draw_scores(generator, chances, repeats[0]), b)
    draw: Callable[[], Numbers] = {
        "normal": lambda: generator.normal(0.5, 0.2, (n, 1)),
        "uniform": lambda: generator.random((n, 1)),
    }[name]
    return pair(draw(), draw() - fall)


def print_kappa(quick: bool) -> None:
    draws = 1000 if quick else 5000
    print(f"The interval of Cohen's kappa that holds the truth ({draws} draws; nominal 0.95)")
    print("    n  passes   kappa 0.0    0.2    0.4    0.6    0.8    0.9")
    lowest = 1.0
    for n, share in product((15, 20, 30, 50, 100), (0.5, 0.7, 0.85)):
        rates = [kappa_coverage(n, share, kappa, draws) for kappa in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9)]
        lowest = min(lowest, *rates)
        print(f"  {n:>3}  {share:>6.2f}   " + " ".join(f"{rate:>6.3f}" for rate in rates))
    print(f"  lowest {lowest:.3f}")


def kappa_coverage(n: int, share: float, kappa: float, draws: int) -> float:
    """How often the interval holds kappa, where both sides pass the same share."""
    generator = numpy.random.default_rng([n, int(100 * share), int(100 * kappa)])
    differ = share * (1 - share) * (1 - kappa)
    cells = [share - differ, differ, differ, 1 - share - differ]
    held = judged = 0
    tables, counts = numpy.unique(
        generator.multinomial(n, cells, draws), axis=0, return_counts=True
    )
    for table, count in zip(tables.tolist(), counts.tolist(), strict=True):
        kinds = ((1.0, 1.0), (1.0, 0.0), (0.0, 1.0), (0.0, 0.0))
        found = calibrate(
            [kind for kind, times in zip(kinds, table, strict=True) for _ in range(times)]
        )
        if found.kappa_low is not None and found.kappa_high is not None:
            judged += count
            held += count * (found.kappa_low <= kappa <= found.kappa_high)
    return held / judged


TABLES: dict[str, Callable[[bool], None]] = {
    "false-alarms": print_false_alarms,
    "sessions": print_sessions,
    "power": print_power,
    "kappa": print_kappa,
}

if __name__ == "__main__":
    main()
