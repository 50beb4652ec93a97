"""One program compiled for several processors, each in a process with a cache of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NO_AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
PROCESSORS = {
    "the host": {},
    "haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "", "NPY_DISABLE_CPU_FEATURES": NO_AVX512},
    "x86-64": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""},
}
"""Numba takes the host's features unless told none; NumPy's own loops are held back for one of them too."""


def start(program: str, environment: dict[str, str], cache: Path) -> subprocess.Popen[str]:
    # A cache of its own, so that the machine code is really compiled for that processor, here and now.
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"PYTHONPATH": path, "LESSRAM_CACHE_DIR": str(cache), **environment}
    command = [sys.executable, "-W", "ignore", "-c", program]
    return subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)


def digests_of(program: str, folder: Path) -> dict[str, str]:
    """What a program prints first on each processor; behind that it names its vector registers, which are checked."""
    running = {name: start(program, extra, folder / name) for name, extra in PROCESSORS.items()}
    outputs = {name: process.communicate(timeout=600)[0].split() for name, process in running.items()}
    assert [process.returncode for process in running.values()] == [0, 0, 0]
    assert outputs["x86-64"][1:] == ["xmm"], "no AVX in the code for SSE2, or nothing was compared"
    assert outputs["haswell"][1:] == ["ymm", "xmm"]
    return {name: output[0] for name, output in outputs.items()}
