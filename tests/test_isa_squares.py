"""Squared-gradient rates: the same bytes from AVX-512, AVX2 and SSE2 code, in every number on the way.

The levels of a small table would hide a difference in the last digit of a rate, so here weights are float32, or
halfwords, and all that the passes leave in their scratch arrays is compared, row after row.
"""

from __future__ import annotations

import hashlib
import platform

import pytest
from processors import digests_of

PROGRAM = """
import hashlib
import numpy as np
from streams import make_rows, to_batch
from lessram.learning import kernels
from lessram.learning.learner import Learner
from lessram.model.spec import Spec

digest = hashlib.sha256()
rows = make_rows(96, (0, 1, 5, 16, 33, 300) * 15, valued=True)
batch = to_batch(rows)
for rates, loss, rule, algorithm, l1 in (
    ("squares8", "logistic", "invariant", "ogd", 0),
    ("squares8", "squared", "invariant", "ogd", 0),
    ("squares8", "hinge", "plain", "ogd", 0),
    ("squares8", "logistic", "plain", "ftrl", 0.2),
    ("squares8", "squared", "invariant", "rda", 0.1),
    ("squares6", "logistic", "invariant", "ogd", 0),
):
    weights = "e3m6" if rates == "squares6" else "float32"
    choices = {"loss": loss, "step_rule": rule, "algorithm": algorithm, "l1": l1, "l2": 2 * l1}
    learner = Learner(Spec(slots=96, weights=weights, rates=rates, alpha=0.1, seed=3, **choices))
    for r, row in enumerate(rows):
        digest.update(learner.learn(batch.slice(r, r + 1), trusted=True).tobytes())
        for array in filter(lambda array: array is not None, learner._scratch):
            digest.update(array[: len(row.features)].tobytes())
    digest.update(learner.model.table.cells.tobytes() + learner.model.scalars.tobytes())
    digest.update(learner.predict(batch, trusted=True).tobytes() + learner.model.weights().tobytes())
    for table in (*learner._rule.sums, *(learner.model.spec.shrinkage or ()), learner._objective.pieces):
        digest.update(np.asarray(table).tobytes())
assembly = "".join(kernels.learn_rows.inspect_asm().values())
print(digest.hexdigest(), *(name for name in ("zmm", "ymm", "xmm") if "%" + name in assembly))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 processor")
def test_all_instruction_sets_give_the_same_numbers_on_the_way(tmp_path):
    digests = digests_of(PROGRAM, tmp_path)
    assert len(digests["the host"]) == len(hashlib.sha256().hexdigest())
    assert len(set(digests.values())) == 1
