"""Every theorem, lemma and corollary of the paper as a function, under the paper's symbols.

    regret      Theorem 3.1      regret_1d                     one coordinate, rounded at random
                fixed grid       regret_fixed_grid             the same, rates that stop falling at the grid's step
                Corollary 3.2    regret_per_coordinate         all coordinates, exact counts
                Theorem 3.3      regret_randomized_counts      all coordinates, randomized counts
    counting    Lemma A.1        counter_lower_tail, counter_upper_tail
    prediction  Lemma 4.1        additive_error
                Lemma 4.2        relative_error
                Lemma A.3        deviation_probability
                Theorem 4.3      expected_relative_error
                section 4        entropy
    beyond      -                curvature_additive_error, curvature_relative_error

T rounds (for one coordinate: those with a gradient), coefficients in [-R, R], gradients of at most G, learning rates
eta, resolution of the grid epsilon <= gamma * eta, base b of the counter, k = ||x||_0 binary features in a row.

The prediction bounds are for the logistic loss, and for coefficients inside the range of the grid: clipping is no
unbiased rounding. They hold for real features too, with k replaced by the sum of |x_i| in `additive_error` (and in
`relative_error` of epsilon * k), and by the sum of x_i^2 everywhere else.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lessram.errors import SpecError

# Regret (section 3.1) -------------------------------------------------------------------------------------------------


def regret_1d(*, T: float, R: float, G: float, gamma: float, eta_T: float, eta_sum: float) -> float:
    """Theorem 3.1: Algorithm 1 with non-increasing rates and a grid no coarser than gamma * eta_t has

        E[Regret] <= (2R)^2 / (2 eta_T) + (G^2 + gamma^2) eta_{1:T} / 2 + gamma R sqrt(T)

    against any adaptive adversary. `eta_T` is the last rate, `eta_sum` the sum of all; gamma = 0 is plain OGD.

    >>> regret_1d(T=100, R=1, G=1, gamma=0, eta_T=0.1, eta_sum=10)
    25.0
    >>> regret_1d(T=100, R=1, G=1, gamma=1, eta_T=0.1, eta_sum=10)
    40.0
    """
    _at_least(1, T=T)
    _positive(R=R, eta_T=eta_T, eta_sum=eta_sum)
    _at_least(0, G=G, gamma=gamma)
    return (2 * R) ** 2 / (2 * eta_T) + (G**2 + gamma**2) * eta_sum / 2 + gamma * R * math.sqrt(T)


def regret_fixed_grid(*, T: float, R: float, G: float, alpha: float, epsilon: float, gamma: float = 1.0) -> float:
    """Theorem 3.1 on one fixed grid: rates alpha / sqrt(t) that stop falling at epsilon / gamma.

    Their sum is at most 2 alpha sqrt(T) while they fall, and grows by epsilon / gamma a round from then on: the
    linear term O(epsilon T) that the paper calls unavoidable on a fixed grid.

    >>> regret_fixed_grid(T=100, R=1, G=1, alpha=1, epsilon=2**-13)  # still falling: as if the grid were adaptive
    50.0
    >>> [round(regret_fixed_grid(T=10**n, R=1, G=1, alpha=1, epsilon=0.01) / 10**n, 3) for n in (4, 6, 8)]
    [0.05, 0.011, 0.01]
    """
    _at_least(1, T=T)
    _positive(alpha=alpha, epsilon=epsilon, gamma=gamma)
    floor = epsilon / gamma
    falling = min(T, (alpha / floor) ** 2)
    eta_sum = 2 * alpha * math.sqrt(falling) + (T - falling) * floor
    return regret_1d(T=T, R=R, G=G, gamma=gamma, eta_T=max(alpha / math.sqrt(T), floor), eta_sum=eta_sum)


def regret_per_coordinate(tau: ArrayLike, *, R: float, G: float, gamma: float) -> float:
    """Corollary 3.2: Algorithm 2 with rates alpha / sqrt(tau_i), alpha = sqrt(2) R / sqrt(G^2 + gamma^2), has

        E[Regret] <= sum over i of  2R sqrt(2 tau_i (G^2 + gamma^2)) + gamma R sqrt(tau_i)

    where `tau` says how many rounds had a gradient on each coordinate (one number for one coordinate).

    >>> round(regret_per_coordinate(100, R=1, G=1, gamma=0), 3), round(regret_per_coordinate(100, R=1, G=1, gamma=1), 3)
    (28.284, 50.0)
    >>> round(regret_per_coordinate([25, 4], R=1, G=1, gamma=0), 3)
    19.799
    """
    _positive(R=R)
    _at_least(0, G=G, gamma=gamma)
    roots = sum(times * math.sqrt(count) for count, times in _counts(tau))
    return (2 * R * math.sqrt(2 * (G**2 + gamma**2)) + gamma * R) * roots


# Randomized counts (section 3.2) --------------------------------------------------------------------------------------


class Tail(NamedTuple):
    """The estimate of the count lies beyond `estimate` with at most this probability."""

    estimate: float
    probability: float


def counter_lower_tail(t: float, *, T: float, b: float, c: float) -> Tail:
    """Lemma A.1, first half: after t <= T increments the randomized counter's estimate of t obeys

        Pr[estimate < t / (b c log T) - 1] <= 1 / T^(c - 1)

    >>> tail = counter_lower_tail(1000, T=1000, b=1.1, c=2)
    >>> round(tail.estimate, 2), round(tail.probability, 6)
    (64.8, 0.001)
    """
    _check_counter(t, T, b, c)
    return Tail(t / (b * c * math.log(T)) - 1, min(1.0, T ** (1 - c)))


def counter_upper_tail(t: float, *, T: float, b: float, c: float) -> Tail:
    """Lemma A.1, second half:

        Pr[estimate > e t / (b - 1) * b^(sqrt(2 c log_b T) + 2)] <= 1 / T^c

    >>> tail = counter_upper_tail(1000, T=1000, b=1.1, c=1)
    >>> round(tail.estimate), round(tail.probability, 6)
    (103618, 0.001)
    """
    _check_counter(t, T, b, c)
    return Tail(math.e * t / (b - 1) * _stretch(T, b, c), T**-c)


_C = 2.5  # the c of Lemma A.1 in the proof of Theorem 3.3: failures then cost at most 4 R G sqrt(T)


def regret_randomized_counts(
    tau: ArrayLike, *, R: float, G: float, gamma: float, b: float, alpha: float | None = None
) -> float:
    """Theorem 3.3, as the explicit bound at the end of its proof: rates alpha / sqrt(counter's estimate + 1) have

        E[Regret] <= sum over coordinates, T = tau_i, of
            2 R^2 sqrt(k2 T + 1) / alpha + (G^2 + gamma^2) alpha sqrt(T / k1) + gamma R sqrt(T) + 4 R G sqrt(T)
        with k1 = 1 / (b c log T),  k2 = e b^(sqrt(2 c log_b T) + 2) / (b - 1),  c = 2.5

    by default with alpha = R / sqrt(G^2 + gamma^2). It is o(T^(1/2 + delta)) for every delta > 0: no regret in the
    limit, though with constants that matter. A coordinate of fewer than 2 rounds counts 2 R G T, which always holds.

    >>> exact = regret_per_coordinate(10**6, R=1, G=1, gamma=1)
    >>> round(regret_randomized_counts(10**6, R=1, G=1, gamma=1, b=1.1) / exact, 1)
    14.4
    """
    _positive(R=R, G=G)
    _at_least(0, gamma=gamma)
    alpha = R / math.hypot(G, gamma) if alpha is None else alpha
    _positive(alpha=alpha)
    total = 0.0
    for T, coordinates in _counts(tau):
        if T < 2:
            total += coordinates * 2 * R * G * T
            continue
        _check_counter(T, T, b, _C)
        root, k1 = math.sqrt(T), 1 / (b * _C * math.log(T))
        k2 = math.e * _stretch(T, b, _C) / (b - 1)
        counted = 2 * R**2 * math.sqrt(k2 * T + 1) / alpha + (G**2 + gamma**2) * alpha * root / math.sqrt(k1)
        total += coordinates * (counted + (gamma + 4 * G) * R * root)
    return total


def _stretch(T: float, b: float, c: float) -> float:
    """b^(sqrt(2 c log_b T) + 2)."""
    return _exp(math.sqrt(2 * c * math.log(T) * math.log(b)) + 2 * math.log(b))


def _check_counter(t: float, T: float, b: float, c: float) -> None:
    _at_least(2, T=T)
    _at_least(0, t=t)
    if t > T:
        raise SpecError(f"t must be at most T = {T}, got {t}")
    if not (b > 1 and math.isfinite(b)):
        raise SpecError(f"b must be above 1, got {b}")
    _positive(c=c)


# Rounding a finished model (section 4) --------------------------------------------------------------------------------


def additive_error(epsilon: float, k: float) -> float:
    """Lemma 4.1: whatever the rounding, a row's loss grows by at most |beta x - beta' x| <= epsilon k.

    >>> additive_error(2**-7, 32)
    0.25
    """
    _positive(epsilon=epsilon)
    return epsilon * _not_negative("k", k)


def relative_error(delta: float) -> float:
    """Lemma 4.2: a row's loss grows by a factor of at most e^delta, delta = |beta x - beta' x|; this is e^delta - 1.

    >>> round(relative_error(0.25), 4)
    0.284
    """
    return _expm1(_not_negative("delta", delta))


def deviation_probability(t: float, *, epsilon: float, k: float) -> float:
    """Lemma A.3: random rounding moves the log-odds of a row by t or more with probability

        Pr[|beta' x - beta x| >= t] <= 2 exp(-t^2 / (2 epsilon^2 k))

    >>> deviation_probability(0.25, epsilon=2**-7, k=64) < 1e-3
    True
    """
    _positive(epsilon=epsilon)
    if _not_negative("t", t) == 0:
        return 1.0
    spread = 2 * epsilon**2 * _not_negative("k", k)
    return min(1.0, 2 * math.exp(-(t**2) / spread)) if spread > 0 else 0.0


def expected_relative_error(epsilon: float, k: float, *, erf: bool = True) -> float:
    """Theorem 4.3: unbiased random rounding makes a row's loss grow, in expectation, relatively by at most

        2 sqrt(2 pi k) exp(epsilon^2 k / 2) epsilon

    or, as its proof ends, with 1 + Erf(epsilon sqrt(k / 2)) in place of the leading 2, unless `erf` is False.

    >>> round(expected_relative_error(2**-7, 32, erf=False), 4), round(expected_relative_error(2**-7, 32), 4)
    (0.2218, 0.1148)
    """
    _positive(epsilon=epsilon)
    deviation = epsilon * math.sqrt(_not_negative("k", k))
    leading = 1 + math.erf(deviation / math.sqrt(2)) if erf else 2.0
    return leading * math.sqrt(2 * math.pi) * deviation * _exp(deviation**2 / 2)


def curvature_relative_error(epsilon: float, k: float) -> float:
    """Beyond the paper: unbiased random rounding makes a row's loss grow, in expectation, relatively by at most

        exp(epsilon^2 k / 8) - 1

    Second order in epsilon where Theorem 4.3 is first order, since unbiased errors cancel to first order.

    Proof. Let L(z) be the loss, D the error of the log-odds. As -log p >= 1 - p, |L'| <= L and L'' <= L, so
    L(z + D) <= L(z) cosh D + L'(z) sinh D = (L + L')/2 e^D + (L - L')/2 e^-D: a combination of e^D and e^-D with
    weights that are not negative and sum to L. D is a sum of independent numbers of mean 0, each from an interval of
    length epsilon, so by Hoeffding's lemma E[e^D] and E[e^-D] are at most exp(epsilon^2 k / 8).

    >>> round(curvature_relative_error(2**-7, 32), 6)
    0.000244
    """
    _positive(epsilon=epsilon)
    return _expm1(epsilon**2 * _not_negative("k", k) / 8)


def curvature_additive_error(epsilon: float, k: float) -> float:
    """Beyond the paper: unbiased random rounding adds, in expectation, at most epsilon^2 k / 32 to a row's loss.

    Proof. L'' <= 1/4, E[D] = 0 and the variance of D is at most k epsilon^2 / 4: E[L(z + D)] - L(z) <= E[D^2] / 8.

    >>> curvature_additive_error(2**-7, 32)
    6.103515625e-05
    """
    _positive(epsilon=epsilon)
    return epsilon**2 * _not_negative("k", k) / 32


def entropy(counts: ArrayLike) -> float:
    """Section 4: what an ideal code needs, -1/d * sum over i of log2 p(beta_i), in bits a value.

    `counts` says how often each value occurs among the d coefficients.

    >>> entropy([2, 1, 1])
    1.5
    >>> entropy([1000])
    0.0
    """
    occurrences = np.asarray(counts)
    if occurrences.size and occurrences.min() < 0:
        raise SpecError(f"counts must not be negative, got {occurrences.min()}")
    if not occurrences.any():
        return 0.0
    shares = occurrences[occurrences > 0] / occurrences.sum()
    return float(max(0.0, -(shares * np.log2(shares)).sum()))


# Arguments ------------------------------------------------------------------------------------------------------------


def _counts(tau: ArrayLike) -> list[tuple[float, int]]:
    """The different numbers of rounds, each with the number of coordinates that had it."""
    rounds, coordinates = np.unique(np.asarray(tau, dtype=np.float64), return_counts=True)
    _at_least(0, tau=float(rounds.min(initial=0.0)))
    return list(zip(rounds.tolist(), coordinates.tolist(), strict=True))


def _positive(**numbers: float) -> None:
    for name, number in numbers.items():
        if not (number > 0 and math.isfinite(number)):
            raise SpecError(f"{name} must be above 0 and finite, got {number}")


def _at_least(least: float, **numbers: float) -> None:
    for name, number in numbers.items():
        if not (number >= least and math.isfinite(number)):
            raise SpecError(f"{name} must be at least {least} and finite, got {number}")


def _not_negative(name: str, number: float) -> float:
    _at_least(0, **{name: number})
    return number


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


def _expm1(exponent: float) -> float:
    return math.expm1(exponent) if exponent < 700 else math.inf
