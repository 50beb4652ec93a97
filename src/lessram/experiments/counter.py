"""Section 3.2 and Lemma A.1: the distribution of the randomized counter's estimate, exactly, beside its bounds.

The distribution is computed, not sampled: the probability of each level after each increment, from the very
thresholds that the tables use. A few thousand counters stepped by the tables' own function are laid over it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lessram.experiments.results import Claim, Findings, Mean, Setting, Table
from lessram.experiments.style import BLUE, GREEN, GREY, ORANGE, RED, tidy
from lessram.jit import kernel
from lessram.numerics import bounds
from lessram.numerics.counter import Counter, gentle, morris, steps_up
from lessram.numerics.random import GOLDEN, finalise, hash_seed

BASES = (1.1, 1.5, 2.0)
MAIN = 1.1
CS = (1.5, 2.0, 2.5, 3.0)
"""The c of Lemma A.1."""
QUANTILES = (0.01, 0.1, 0.5, 0.9, 0.99)
ROUNDING_BIAS, ROUNDING_SPREAD = 1e-9, 1e-6
"""What the arithmetic of an exact distribution may leave of a mean and of a deviation."""
FAR = 4.5
"""Standard errors that no sampled mean should be away."""


class Spread(NamedTuple):
    """The levels of a counter after t increments: one row of probabilities for each of some t."""

    counter: Counter
    times: NDArray[np.int64]
    shares: NDArray[np.float64]

    @property
    def mean(self) -> NDArray[np.float64]:
        return self.shares @ self.counter.estimates

    @property
    def deviation(self) -> NDArray[np.float64]:
        return np.sqrt(np.maximum(self.shares @ self.counter.estimates**2 - self.mean**2, 0.0))

    def quantile(self, share: float) -> NDArray[np.float64]:
        return self.counter.estimates[np.argmax(np.cumsum(self.shares, axis=1) >= share, axis=1)]

    def below(self, row: int, estimate: float) -> float:
        return float(self.shares[row][self.counter.estimates < estimate].sum())

    def above(self, row: int, estimate: float) -> float:
        return float(self.shares[row][self.counter.estimates > estimate].sum())


@kernel
def evolve(shares, climbs, times, rows):
    """Let the probabilities of all levels take one increment after another; row k of `rows` is after `times[k]`."""
    k, top = 0, 0
    for t in range(1, times[-1] + 1):
        top = min(top + 1, shares.size - 1)
        for level in range(top, 0, -1):
            shares[level] += shares[level - 1] * climbs[level - 1] - shares[level] * climbs[level]
        shares[0] -= shares[0] * climbs[0]
        if t == times[k]:
            for level in range(shares.size):
                rows[k, level] = shares[level]
            k += 1


@kernel
def count(thresholds, seed, times, levels):
    """Step many counters; `levels[r, k]` is where counter r stands after `times[k]` increments."""
    for r in range(levels.shape[0]):
        key = finalise(seed + np.uint64(r) * GOLDEN)
        level, k = 0, 0
        for t in range(1, times[-1] + 1):
            level += np.int64(steps_up(thresholds[level], finalise(key + np.uint64(t) * GOLDEN)))
            if t == times[k]:
                levels[r, k] = level
                k += 1


def spread(counter: Counter, times: NDArray[np.int64]) -> Spread:
    """The exact distribution of a counter after each of these numbers of increments."""
    shares, rows = np.zeros(len(counter.estimates)), np.empty((len(times), len(counter.estimates)))
    shares[0] = 1.0
    evolve(shares, counter.thresholds * 2.0**-64, times, rows)
    return Spread(counter, times, rows)


def run(setting: Setting) -> Findings:
    """Distributions for several bases, and a sample of real counters."""
    longest, counters = (14, 1000) if setting.quick else (20, 4000)
    times = 2 ** np.arange(1, longest + 1)
    spreads = {}
    for base in BASES:
        setting.tell(f"counter: base {base:g}, the distribution up to {times[-1]:,} increments")
        spreads[base] = spread(morris(base), times)
    ladder = spread(gentle(MAIN), times)
    setting.tell(f"counter: {counters:,} counters of {times[-1]:,} increments")
    levels = np.empty((counters, len(times)), np.int64)
    count(morris(MAIN).thresholds, np.uint64(hash_seed(11)), times, levels)
    sample = morris(MAIN).estimates[levels]
    points = [point for base, found in spreads.items() for point in _points(f"morris, base {base:g}", base, found)]
    return Findings(
        name="counter",
        title="The randomized counter against its bounds (section 3.2, Lemma A.1)",
        paper="C starts at 1 and steps up with probability b^-C; (b^C - b) / (b - 1) is an unbiased estimate. "
        "Lemma A.1 bounds both tails. For all experiments b = 1.1.",
        method=f"The exact distribution of the 8-bit counter up to {times[-1]:,} increments, from the 64-bit "
        f"thresholds of the tables, and {counters:,} counters stepped by the tables' function.",
        points=[*points, *_points("ladder8", MAIN, ladder), *_sampled(times, sample)],
        claims=_claims(spreads, times, sample),
        pictures={"counter": lambda figure: _draw(figure, spreads[MAIN], ladder, sample)},
        tables=[_table(spreads, ladder)],
        remarks=_remarks(spreads[MAIN], ladder),
    )


def _points(name: str, base: float, found: Spread) -> list[dict[str, Any]]:
    quantiles = {f"quantile_{share:g}": found.quantile(share) for share in QUANTILES}
    return [
        {
            "counter": name,
            "base": base,
            "t": t,
            "mean": float(found.mean[row]),
            "standard_deviation": float(found.deviation[row]),
            **{label: float(values[row]) for label, values in quantiles.items()},
        }
        for row, t in enumerate(found.times.tolist())
    ]


def _sampled(times: NDArray[np.int64], sample: NDArray[np.float64]) -> list[dict[str, Any]]:
    means = [Mean.of(column.tolist()) for column in sample.T]
    return [
        {
            "counter": "sampled",
            "base": MAIN,
            "t": t,
            "mean": m.value,
            "standard_error": m.error,
            "repetitions": len(sample),
        }
        for t, m in zip(times.tolist(), means, strict=True)
    ]


def expected_deviation(t: NDArray[np.int64], base: float) -> NDArray[np.float64]:
    """sqrt((b - 1) t (t + 1) / 2): from E[b^2C] = E[b^2C before] + (b^2 - 1) E[b^C before]."""
    return np.sqrt((base - 1.0) * t * (t + 1.0) / 2.0)


def _claims(spreads: dict[float, Spread], times: NDArray[np.int64], sample: NDArray[np.float64]) -> list[Claim]:
    bias = max(float(np.abs(found.mean / times - 1.0).max()) for found in spreads.values())
    wide = max(
        float(np.abs(found.deviation / expected_deviation(times, base) - 1).max()) for base, found in spreads.items()
    )
    means = [Mean.of(column.tolist()) for column in sample.T]
    off = max(abs(m.value - t) / m.error for t, m in zip(times.tolist(), means, strict=True) if m.error > 0)
    return [
        Claim(
            "the estimate is unbiased",
            f"a relative bias below {ROUNDING_BIAS:.0e}",
            bias < ROUNDING_BIAS,
            f"largest relative bias {bias:.1e}, by exact distribution",
        ),
        Claim(
            "its variance is (b - 1) t (t + 1) / 2 (a relative error of 22 % at b = 1.1, however long the stream)",
            f"a relative difference of the deviation below {ROUNDING_SPREAD:.0e}",
            wide < ROUNDING_SPREAD,
            f"largest relative difference {wide:.1e}",
            beyond=True,
        ),
        Claim(
            "counters stepped by the tables' own function follow that distribution",
            f"sampled means within {FAR:g} standard errors",
            off < FAR,
            f"largest distance of {len(means)} means {off:.1f} standard errors",
            beyond=True,
        ),
        *_tails(spreads, times),
    ]


def _tails(spreads: dict[float, Spread], times: NDArray[np.int64]) -> list[Claim]:
    """Lemma A.1 with T = t, where it is sharpest."""
    lower, upper = [], []
    for base, found in spreads.items():
        for row, t in enumerate(times.tolist()):
            for c in CS:
                low, high = (
                    tail(t, T=t, b=base, c=c) for tail in (bounds.counter_lower_tail, bounds.counter_upper_tail)
                )
                lower.append((found.below(row, low.estimate), low.probability))
                upper.append((found.above(row, high.estimate), high.probability))
    return [_tail_claim(name, pairs) for name, pairs in (("lower", lower), ("upper", upper))]


def _tail_claim(name: str, pairs: list[tuple[float, float]]) -> Claim:
    broken = sum(1 for share, bound in pairs if share > bound * (1 + 1e-12))
    largest = max(share / bound for share, bound in pairs)
    return Claim(
        f"Lemma A.1, {name} tail: never more probable than its bound",
        "no case above",
        broken == 0,
        f"{broken} of {len(pairs)} cases above; the largest share of a bound is {largest:.2g}",
    )


def _table(spreads: dict[float, Spread], ladder: Spread) -> Table:
    named = [(f"base {base:g}", found) for base, found in spreads.items()] + [("ladder8, base 1.1", ladder)]
    rows = []
    for name, found in named:
        for row in range(3, len(found.times), 5):
            t = found.times[row]
            cells = [f"{found.quantile(share)[row] / t:.2f}" for share in QUANTILES]
            rows.append([name, f"{t:,}", f"{found.mean[row] / t:.6f}", f"{found.deviation[row] / t:.1%}", *cells])
    heading = ["counter", "t", "mean / t", "deviation / t", *(f"{share:.0%} quantile / t" for share in QUANTILES)]
    return Table(heading, rows)


def _allowed(t: int, chance: float) -> float:
    """How many times too large an estimate may be by Lemma A.1 but with this probability, which is its T^-c."""
    return bounds.counter_upper_tail(t, T=t, b=MAIN, c=math.log(1.0 / chance) / math.log(t)).estimate / t


def _remarks(found: Spread, ladder: Spread) -> list[str]:
    few = 3  # t = 16
    t, last = int(found.times[few]), int(found.times[-1])
    tried = [bounds.counter_upper_tail(T, T=T, b=MAIN, c=c).estimate / T for T in found.times.tolist() for c in CS]
    return [
        f"At base {MAIN} and t = {last:,} the upper tail of Lemma A.1 allows, with 99 % confidence, estimates of up to "
        f"{_allowed(last, 0.01):.0f} t; the exact 99 % quantile is {found.quantile(0.99)[-1] / last:.2f} t. At the T "
        f"and c that were checked it allows {min(tried):.0f} to {max(tried):.0f} t.",
        f"A rate falls fastest while counts are small, and there the counter is noisiest: at t = {t} its deviation is "
        f"{found.deviation[few] / t:.0%} of t, that of `ladder8`, which counts exactly at first in the same 8 bits, "
        f"{ladder.deviation[few] / t:.0%}.",
    ]


# The picture ----------------------------------------------------------------------------------------------------------


def _draw(figure: Any, found: Spread, ladder: Spread, sample: NDArray[np.float64]) -> None:
    figure.set_size_inches(11.5, 4.6)
    left, right = figure.subplots(1, 2)
    _draw_band(left, found, ladder)
    _draw_distribution(right, found, sample)


def _draw_band(axes: Any, found: Spread, ladder: Spread) -> None:
    times = found.times
    for low, high, alpha in ((0.01, 0.99, 0.2), (0.1, 0.9, 0.35)):
        band = found.quantile(low) / times, found.quantile(high) / times
        label = f"{low:.0%} to {high:.0%}, base {MAIN}"
        axes.fill_between(times, np.maximum(band[0], 1e-3), band[1], color=BLUE, alpha=alpha, linewidth=0, label=label)
    for share, name in ((0.01, "1 % and 99 %, ladder8"), (0.99, None)):
        axes.plot(times, ladder.quantile(share) / times, color=GREEN, linewidth=1.2, label=name)
    tails = [[tail(t, T=t, b=MAIN, c=2.5).estimate / t for t in times.tolist()] for tail in (
        bounds.counter_lower_tail, bounds.counter_upper_tail
    )]  # fmt: skip
    for index, line in enumerate(tails):
        height = np.where(np.array(line) > 0, line, np.nan)
        axes.plot(times, height, color=RED, linestyle="--", label=None if index else "Lemma A.1, c = 2.5")
    axes.axhline(1.0, color=GREY, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    tidy(axes, title="Estimate of the count, over the count", xlabel="t, increments", ylabel="estimate / t")
    axes.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.62), fontsize=8)


def _draw_distribution(axes: Any, found: Spread, sample: NDArray[np.float64]) -> None:
    t = found.times[-1]
    levels = np.arange(found.shares.shape[1])
    counted = np.bincount(np.searchsorted(found.counter.estimates, sample[:, -1]), minlength=len(levels)) / len(sample)
    kept = np.flatnonzero(found.shares[-1] > 1e-5)
    ratio = found.counter.estimates / t
    axes.bar(levels[kept], counted[kept], color=BLUE, alpha=0.35, label=f"{len(sample):,} counters")
    axes.plot(levels[kept], found.shares[-1][kept], color=ORANGE, marker="o", markersize=3, label="exact distribution")
    axes.axvline(np.interp(1.0, ratio, levels), color=GREY, linewidth=0.8, label="the true count")
    tidy(axes, title=f"Level after {t:,} increments, base {MAIN}")
    axes.set(xlabel="level (C - 1, what is stored)", ylabel="probability")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False, fontsize=8, loc="upper right")
