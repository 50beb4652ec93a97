"""The one place that imports Numba: compile flags and the disk cache.

Policy. No fastmath and no bounds checks: rounding must be exact, and callers validate before they call.
All kernels release the GIL. Division follows NumPy (no exception inside a kernel). Kernels own no memory:
without Numba's reference counting (`_nrt`), arrays inside NamedTuples cost nothing to touch.

Cache. Numba's own disk cache looks only at the file of the cached function, so an edit in a module
that it imports is silently ignored. Here compiled code lives in a folder named after a fingerprint
of every source file of the package that a kernel can import: an edit can never be served by a stale kernel.

`LESSRAM_CACHE_DIR` moves the cache; an empty value switches it off.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numba
from llvmlite import binding
from numba import core, extending
from numba.core import event
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

__all__ = [
    "cgutils",
    "compile_seconds",
    "fingerprint",
    "inlined",
    "intrinsic",
    "kernel",
    "nothing_compiled",
    "overloaded",
    "types",
]
__all__ += ["target_features", "target_processor"]

types: Any = core.types
cgutils: Any = core.cgutils
intrinsic: Any = extending.intrinsic
"""Declare a function by the instructions that it becomes."""

PACKAGE = Path(__file__).parent

FLAGS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False, "fastmath": False, "_nrt": False}


@functools.cache
def fingerprint() -> str:
    """A digest of all sources of the package but the command line's, the name of the cache folder."""
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("cli/"):  # it stands above everything: nothing that is compiled imports it
            digest.update(name.encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


@functools.cache
def cache_folder() -> Path | None:
    """Where compiled kernels are kept, or None when caching is switched off."""
    chosen = os.environ.get("LESSRAM_CACHE_DIR")
    if chosen == "":
        return None
    if chosen is None:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        chosen = os.path.join(base, "lessram")
    return Path(chosen) / fingerprint()


def nothing_compiled() -> bool:
    """Whether this is the first run of these sources, which must compile what it uses."""
    folder = cache_folder()
    return folder is None or not any(folder.glob("*.nbc"))


_compiling = event.TimingListener()
event.register("numba:compile", _compiling)


def compile_seconds() -> float:
    """How long this process has been compiling kernels that it did not find in the cache."""
    return float(_compiling.duration) if _compiling.done else 0.0


def target_features() -> frozenset[str]:
    """What the processor that is compiled for offers, as LLVM names it; `NUMBA_CPU_FEATURES` overrides."""
    chosen = numba.config.CPU_FEATURES
    listed = binding.get_host_cpu_features().flatten() if chosen is None else chosen
    return frozenset(name[1:] for name in listed.split(",") if name.startswith("+"))


def target_processor() -> str:
    """The processor that is compiled for, by LLVM's name for it."""
    return str(numba.config.CPU_NAME or binding.get_host_cpu_name())


class _Locator(_CacheLocator):
    """Tells Numba to keep a function's compiled code in `cache_folder()`."""

    def __init__(self, py_func: Any) -> None:
        self._module = py_func.__module__
        self._line = py_func.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_folder())

    def get_source_stamp(self) -> str:
        return fingerprint()

    def get_disambiguator(self) -> str:
        return f"{self._module}-{self._line}"

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Locator | None:
        try:
            locator = cls(py_func)
            locator.ensure_cache_path()
        except OSError:
            return None  # read-only home: compile anew in every process
        return locator


class _CacheImpl(CompileResultCacheImpl):
    _locator_classes = [_Locator]


class _Cache(FunctionCache):
    _impl_class = _CacheImpl


def kernel(function: Any) -> Any:
    """Compile a function that Python calls; its machine code is kept on disk."""
    dispatcher = numba.njit(**FLAGS)(function)
    if cache_folder() is not None:
        with contextlib.suppress(RuntimeError):  # no folder to write to: compile anew in every process
            dispatcher._cache = _Cache(function)
    return dispatcher


def inlined(function: Any) -> Any:
    """Compile a function that only kernels call; it disappears into its callers.

    Without the wrappers that Python and C would need to call it, compiling takes a quarter less time.
    """
    return numba.njit(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **FLAGS)(function)


def overloaded(stub: Any) -> Any:
    """Register an implementation of `stub`, chosen by the types of its arguments at compile time."""
    return extending.overload(stub, jit_options={"forceinline": True, **FLAGS})
