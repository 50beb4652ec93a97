"""Learning-rate schedules (section 3 and Algorithm 2).

    global           eta_t   = alpha / sqrt(t), t the number of the example
    exact counts     eta_t,i = alpha / sqrt(tau_i + offset), tau_i the rounds with a gradient on i so far,
                     this one included; offset 0 is Algorithm 2 as printed, offset 1 the form that the
                     randomized counter needs, so that comparisons differ only in the counting
    randomized       eta_t,i = alpha / sqrt(est(C_i) + 1), read after the counter took its step

Fixed discretisation: optionally the rate stops falling at eps, the step of the grid, which gives the
linear regret term of the paper and follows drifting data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lessram.jit import inlined


@inlined
def global_rate(alpha, example, floor):
    """alpha / sqrt(t) for the t-th example, `example` = t - 1, as float32."""
    return np.float32(max(np.float64(alpha) / np.sqrt(np.float64(example) + 1.0), np.float64(floor)))


@inlined
def exact_rate(alpha, count, offset, floor):
    """alpha / sqrt(count + offset), in float32 throughout: this is a vector loop's body."""
    return max(alpha / np.sqrt(count + offset), floor)


def rates_by_level(alpha: float, estimates: NDArray[np.float64], floor: float = 0.0) -> NDArray[np.float32]:
    """The rate at each level of a randomized counter.

    >>> rates_by_level(1.0, np.array([0.0, 3.0, 8.0]), floor=0.4)
    array([1. , 0.5, 0.4], dtype=float32)
    """
    return np.maximum(alpha / np.sqrt(estimates + 1.0), floor).astype(np.float32)
