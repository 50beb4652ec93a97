"""Vowpal Wabbit, run over a file in a process of its own. It parses in one thread and learns in another."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

AVAILABLE = importlib.util.find_spec("vowpalwabbit") is not None
BITS_PER_COORDINATE = {"": 128, "--sgd": 32, "--ftrl": 128}
"""Stored beside each slot, by learner: the default keeps a weight and two rate states, padded to four."""

_CHILD = """
import json, sys, time
import vowpalwabbit
start, cpu = time.perf_counter(), time.process_time()
workspace = vowpalwabbit.Workspace(sys.argv[1])
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
workspace.finish()
print(json.dumps({"seconds": seconds, "cpu": cpu}))
"""


def run(path: Path, options: str, *, bits: int = 18, predictions: Path | None = None) -> dict[str, Any]:
    """One pass of Vowpal Wabbit over a file: its wall and processor seconds.

    `predictions` is where it writes the margin of each row, predicted before it learns the row.
    """
    arguments = f"--quiet -d {path} --loss_function logistic -b {bits} --no_stdin {options}"
    if predictions is not None:
        arguments += f" -r {predictions}"
    done = subprocess.run([sys.executable, "-c", _CHILD, arguments], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def startup(folder: Path, options: str, *, bits: int = 18) -> dict[str, float]:
    """What a run costs that has next to nothing to read: wall and processor seconds to be taken off those of others."""
    tiny = folder / "tiny.vw"
    tiny.write_text("1 | a\n-1 | b\n")
    runs = [run(tiny, options, bits=bits) for _ in range(3)]
    return {clock: min(float(found[clock]) for found in runs) for clock in ("seconds", "cpu")}
