"""Values by raw key: a static function over 64-bit hashes of features, without the keys.

A model whose features are known when it is deployed needs no table of slots: every seen key has a value of its own,
no two of them collide, and no key is stored. Two ribbons:

    filter   k bits for every key whose value is not 0, equal to k bits of its hash
    codes    the value's codeword, for every seen key that passes the filter

A seen key of value 0 mostly fails the filter and costs nothing; the few that pass have a codeword. A key that was
never seen reads as 0, except with probability 2^-k, when it reads as noise. k is what makes the whole shortest, or
more where the caller asks for it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lessram.errors import DataError, FileFormatError, SpecError
from lessram.model import file
from lessram.model.ledger import entropy
from lessram.model.model import described
from lessram.numerics.fixed_point import FixedPoint
from lessram.serving.escapes import worth_coding
from lessram.serving.keyed_ribbon import KeyedRibbon, build_ribbon, hashed, read_words, ribbon_from
from lessram.serving.prefix import LIMIT, canonical, limited_lengths, make_prefix, symbol_table

KEYED = "keyed"
MOST_FILTER_BITS = 32
_SALTS = {"filter": 0x2545F4914F6CDD1D, "codes": 0x9FB21C651E98DF25}
_RAW = -(1 << 15)  # stands for values without a codeword; no grid has it
_PIECE = 1 << 20
_RIBBON_TYPES = {"bits": "u1", "bases": "<u8", "anchors": "<u2", "shape": "<u8"}


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says besides its tensors."""

    kind: str
    grid: str
    keys: int
    filter_bits: int
    entropy: float
    """Bits a key that an ideal code of the values would need, the keys being known."""


@dataclass(frozen=True)
class KeyedStore:
    """Integers by key.

    >>> keys = np.array([7, 1 << 40, 3], np.uint64)
    >>> store = encode_keys(keys, np.array([5, 0, -2]), grid=FixedPoint(2, 7), fingerprint_bits=20)
    >>> store.lookup(keys).tolist(), store.lookup(np.array([8], np.uint64)).tolist()
    ([5, 0, -2], [0])
    """

    about: About
    tensors: dict[str, NDArray[Any]]

    @property
    def grid(self) -> FixedPoint:
        return FixedPoint.parse(self.about.grid)

    @property
    def nbytes(self) -> int:
        """Bytes of everything that is stored."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def bits_per_key(self) -> float:
        return 8 * self.nbytes / max(self.about.keys, 1)

    def lookup(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        """The values of keys, in units of the grid: of those that were encoded exactly, of others mostly 0."""
        keys = _checked_keys(keys)
        units = np.zeros(len(keys), np.int32)
        for start in range(0, len(keys), _PIECE):
            part = keys[start : start + _PIECE]
            passed = np.flatnonzero(_passes(self._ribbon("filter"), part, self.about.filter_bits))
            units[start + passed] = self._values(part[passed])
        return units

    def _values(self, keys: NDArray[np.uint64]) -> NDArray[np.int32]:
        words = read_words(self._ribbon("codes"), keys)
        code = canonical(self.tensors["lengths"])
        table = symbol_table(code)
        symbols = table[words & np.uint64(len(table) - 1)]
        units = self.tensors["values"][symbols].astype(np.int32)
        width = self.grid.width
        plain = (words >> code.lengths[symbols].astype(np.uint64)) & np.uint64((1 << width) - 1)
        signed = plain.astype(np.int32) - ((plain >> np.uint64(width - 1)).astype(np.int32) << width)
        return np.where(units == _RAW, signed, units).astype(np.int32)

    def _ribbon(self, name: str) -> KeyedRibbon:
        return ribbon_from({part: self.tensors[f"{name}_{part}"] for part in _RIBBON_TYPES}, _SALTS[name])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file; readers see the old one or the new one, never a part."""
        file.write(path, self.tensors, self.about)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, verify: bool = False) -> KeyedStore:
        """Map a file into memory, reading its header only; `verify` reads everything and compares checksums."""
        tensors, raw = file.read(path, verify=verify)
        name = os.fspath(path)
        about = described(raw, KEYED, About, path, "")
        try:
            expected = {f"{ribbon}_{part}": kind for ribbon in _SALTS for part, kind in _RIBBON_TYPES.items()}
            for tensor, kind in {**expected, "lengths": "<u2", "values": "<i2"}.items():
                if tensors[tensor].dtype != np.dtype(kind):
                    raise ValueError(f"{tensor} of type {tensors[tensor].dtype}, expected {np.dtype(kind)}")
            store = cls(about, {key: _read_only(tensor) for key, tensor in tensors.items()})
            for ribbon in _SALTS:
                store._ribbon(ribbon)
            if len(canonical(tensors["lengths"]).lengths) != len(tensors["values"]):
                raise ValueError("another number of values than of codewords")
        except KeyError as error:
            raise FileFormatError(f"{name}: cannot be understood: {error}") from None
        except ValueError as error:
            raise FileFormatError(f"{name}: damaged model file: its tensors do not fit: {error}") from None
        return store


def encode_keys(
    keys: NDArray[np.uint64], values: NDArray[np.integer], *, grid: FixedPoint, fingerprint_bits: int = 0
) -> KeyedStore:
    """The store of these values, in units of the grid, by these keys, all different.

    `fingerprint_bits`: keys that are not among them should read as 0 except with probability 2^-fingerprint_bits.
    """
    keys = _checked_keys(keys)
    unique, counts = np.unique(keys, return_counts=True)
    if len(unique) < len(keys):
        raise DataError(f"found the key {unique[np.argmax(counts > 1)]} twice, expected different keys")
    units = _checked_values(values, len(keys), grid)
    if not 0 <= fingerprint_bits <= MOST_FILTER_BITS:
        raise SpecError(f"fingerprint_bits must be between 0 and {MOST_FILTER_BITS}, got {fingerprint_bits}")
    nonzero = units != 0
    bits = max(fingerprint_bits, _best_filter(units))
    lengths = np.full(np.count_nonzero(nonzero), bits, np.uint8)
    filter_tensors = build_ribbon(keys[nonzero], lengths, _fingerprints(keys[nonzero], bits), _SALTS["filter"])
    passed = _passes(ribbon_from(_frozen(filter_tensors), _SALTS["filter"]), keys, bits)
    names, counts, code_lengths, codewords = _value_code(units[passed], grid.width)
    code_tensors = build_ribbon(keys[passed], code_lengths, codewords, _SALTS["codes"])
    _, occurrences = np.unique(units, return_counts=True)
    tensors = {
        **{f"filter_{name}": tensor for name, tensor in filter_tensors.items()},
        **{f"codes_{name}": tensor for name, tensor in code_tensors.items()},
        "lengths": counts.astype(np.uint16),
        "values": names.astype(np.int16),
    }
    about = About(kind=KEYED, grid=str(grid), keys=len(keys), filter_bits=bits, entropy=entropy(occurrences))
    return KeyedStore(about, _frozen(tensors))


def _checked_keys(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    if keys.dtype != np.uint64 or keys.ndim != 1:
        raise DataError(f"found keys as {keys.ndim}-d {keys.dtype}, expected a 1-d array of uint64")
    return np.ascontiguousarray(keys)


def _checked_values(values: NDArray[np.integer], count: int, grid: FixedPoint) -> NDArray[np.int64]:
    if values.shape != (count,) or values.dtype.kind not in "iu":
        raise DataError(f"found values as {values.dtype} of shape {values.shape}, expected {count} integers, one a key")
    units = values.astype(np.int64)
    if count and np.abs(units).max() > grid.largest_units:
        most = grid.largest_units
        raise SpecError(f"values on the grid {grid} must be between -{most} and {most}, got {np.abs(units).max()}")
    return units


def _best_filter(units: NDArray[np.int64]) -> int:
    """How many bits of filter make filter and codes shortest together."""
    _, counts = np.unique(units[units != 0], return_counts=True)
    nonzero, zeros = int(counts.sum()), len(units) - int(counts.sum())

    def cost(bits: int) -> int:
        left = np.append(np.sort(counts)[-(1 << LIMIT) + 1 :], zeros >> bits)
        return bits * nonzero + int(left @ limited_lengths(left))

    return min(range(17), key=cost) if nonzero else 0


def _fingerprints(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return hashed(keys, _SALTS["filter"]) & np.uint64((1 << bits) - 1)


def _passes(keyed: KeyedRibbon, keys: NDArray[np.uint64], bits: int) -> NDArray[np.bool_]:
    if bits == 0:
        return np.ones(len(keys), bool)
    return (read_words(keyed, keys) & np.uint64((1 << bits) - 1)) == _fingerprints(keys, bits)


def _value_code(
    units: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint64]]:
    """Values in canonical order, codewords of each length, and the codeword of every given value."""
    found, inverse, counts = np.unique(units, return_inverse=True, return_counts=True)
    frequent = np.argsort(-counts, kind="stable")
    kept = frequent[: min(worth_coding(counts[frequent], width), (1 << LIMIT) - 1)]
    weights, names = counts[kept], found[kept]
    if len(kept) < len(found) or not len(kept):
        weights, names = np.append(weights, max(len(units) - int(weights.sum()), 1)), np.append(names, _RAW)
    order, code = make_prefix(weights)
    places = np.full(len(found), len(weights) - 1)  # of values without a codeword, that of the last name, _RAW
    places[kept] = np.arange(len(kept))
    symbols = np.argsort(order)[places][inverse]
    raw = names[order][symbols] == _RAW
    lengths = code.lengths[symbols].astype(np.uint64)
    plain = units.astype(np.uint64) & np.uint64((1 << width) - 1)
    codewords = code.codewords[symbols] | np.where(raw, plain << lengths, np.uint64(0))
    return names[order], code.counts, (lengths + raw * np.uint64(width)).astype(np.uint8), codewords


def _read_only(tensor: NDArray[Any]) -> NDArray[Any]:
    """Kernels are compiled once for all stores, in files or not."""
    tensor = (tensor if tensor.flags.aligned else tensor.copy()).view()
    tensor.flags.writeable = False
    return tensor


def _frozen(tensors: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {name: _read_only(tensor) for name, tensor in tensors.items()}
