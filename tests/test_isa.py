"""The same model bytes from AVX-512, AVX2 and SSE2 code."""

from __future__ import annotations

import hashlib
import platform

import pytest
from processors import digests_of

PROGRAM = '''
import hashlib, sys
import numpy as np
from streams import make_rows, to_batch
from test_hashing import hashed_together
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
digest.update(repr(hashed_together([b"name" * (i % 4) + b"%d" % (i % 100) for i in range(99)], np.uint32(3))).encode())
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


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 processor")
def test_all_instruction_sets_give_the_same_bytes(tmp_path):
    digests = digests_of(PROGRAM, tmp_path)
    assert len(digests["the host"]) == len(hashlib.sha256().hexdigest())
    assert len(set(digests.values())) == 1
