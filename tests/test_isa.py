"""The same model bytes from AVX-512, AVX2 and SSE2 code."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = '''
import hashlib, sys
import numpy as np
from streams import make_rows, to_batch
from lessram.learning import kernels
from lessram.learning.learner import Learner
from lessram.model.spec import Spec

def flatten(rule):
    """The numbers and arrays behind a rule, which no processor may change either."""
    for name, part in rule._asdict().items():
        if hasattr(part, "_asdict"):
            yield from flatten(part)
        else:
            yield name, part


digest = hashlib.sha256()
for weights, rates, valued in [
    ("q2.13", "morris8", False),
    ("float32", "exact32", True),
    ("q2.13", "squares8", True),
    ("adaptive", "ladder8", False),
]:
    batch = to_batch(make_rows(96, (0, 5, 16, 33, 300) * 20, valued=valued), valued=valued)
    learner = Learner(Spec(slots=96, weights=weights, rates=rates, alpha=0.5, seed=3))
    digest.update(learner.learn(batch, trusted=True).tobytes())
    digest.update(learner.model.table.cells.tobytes() + learner.model.scalars.tobytes())
    digest.update(repr([(name, np.asarray(part).tobytes()) for name, part in flatten(learner._rule)]).encode())
assembly = "".join(kernels.learn_rows.inspect_asm().values())
print(digest.hexdigest(), *(name for name in ("zmm", "ymm", "xmm") if "%" + name in assembly))
'''

NO_AVX512 = "X86_V4 AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR"
PROCESSORS = {
    "the host": {},
    "haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "", "NPY_DISABLE_CPU_FEATURES": NO_AVX512},
    "x86-64": {"NUMBA_CPU_NAME": "x86-64", "NUMBA_CPU_FEATURES": ""},
}
"""Numba takes the host's features unless told none; NumPy's own loops are held back for one of them too."""


def start(environment: dict[str, str], cache: Path) -> subprocess.Popen[str]:
    # A cache of its own, so that the machine code is really compiled for that processor, here and now.
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    settings = {"PYTHONPATH": path, "LESSRAM_CACHE_DIR": str(cache), **environment}
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    return subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 processor")
def test_all_instruction_sets_give_the_same_bytes(tmp_path):
    running = {name: start(extra, tmp_path / name) for name, extra in PROCESSORS.items()}
    outputs = {name: process.communicate(timeout=300)[0].split() for name, process in running.items()}
    assert [process.returncode for process in running.values()] == [0, 0, 0]
    registers = {name: output[1:] for name, output in outputs.items()}
    assert registers["x86-64"] == ["xmm"], "no AVX in the code for SSE2, or nothing was compared"
    assert registers["haswell"] == ["ymm", "xmm"]
    digests = {name: output[0] for name, output in outputs.items()}
    assert len(digests["the host"]) == len(hashlib.sha256().hexdigest())
    assert digests == dict.fromkeys(PROCESSORS, digests["the host"])
