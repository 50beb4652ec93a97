"""Values to encode: what trained models look like, and what no model should ever look like."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def long_tail(slots: int, fraction_bits: int, seed: int = 0) -> NDArray[np.int16]:
    """Coefficients of a hashed model on q2.M: features seen by a power law, seldom seen ones near 0."""
    rng = np.random.default_rng(seed)
    seen = rng.poisson(np.minimum(0.32 * (np.arange(1, slots + 1) / slots) ** -1.34, 1e6))
    spread = 0.026 * np.sqrt(seen / (seen + 123.0)) * np.exp(0.05 * rng.standard_normal(slots))
    coefficients = spread * rng.laplace(size=slots) * 2.0**fraction_bits
    units = np.floor(coefficients + rng.random(slots) * (seen > 0))
    most = 2 ** (fraction_bits + 2) - 1
    return rng.permutation(np.clip(units, -most, most).astype(np.int16))


def strange() -> dict[str, NDArray[np.int64]]:
    """Everything else, on q2.9: by name, since a test that fails should say on what."""
    rng = np.random.default_rng(5)
    noise = rng.integers(-2047, 2048, 20_000)
    islands = np.zeros(60_000, np.int64)
    islands[1000:3000] = rng.integers(-2047, 2048, 2000)
    islands[50_000:50_100] = 1
    crowded = np.zeros(30_000, np.int64)
    crowded[::1000] = 2047
    crowded[-64:] = rng.integers(1, 2048, 64)
    return {
        "one zero": np.zeros(1, np.int64),
        "one value": np.array([-2047]),
        "two values": np.array([5, -5]),
        "all zero": np.zeros(100_000, np.int64),
        "all the same": np.full(10_007, 77),
        "two in turn": np.arange(10_000) % 2 * 1000,
        "incompressible": noise,
        "every value once": np.arange(-2047, 2048),
        "islands in zeros": islands,
        "sparse, then dense": crowded,
        "sorted": np.sort(noise),
        "one in a desert": np.eye(1, 70_001, 70_000, dtype=np.int64)[0] * -3,
        "short period": np.tile([1, 0, -2, 0, 0, 0, 2047], 3001),
    }


def golden_values() -> NDArray[np.int64]:
    """The values of tests/golden/q2.9.served, by integer arithmetic alone."""
    numbers = np.arange(30_000) * 40_503 % 65_537
    values = np.where(numbers % 7 == 0, numbers % 11 - 5, 0)
    values[::777] = 900
    values[5_000:5_040] = numbers[5_000:5_040] % 2_047
    return values
