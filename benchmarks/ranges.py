"""How far must weights reach? Formats of equal bits and different ranges: `python benchmarks/ranges.py [SET ...]`.

What each adds to the progressive log-loss of float32 weights and exact sums, at the learning rate that is best for
those; and which format the first examples choose if none is named. A table in Markdown.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from accuracy import ALL, tuned
from accuracy_systems import ALPHAS, learned
from peer_sets import DataSet
from peers import scored

from lessram import Learner, Spec
from lessram.learning import auto_choice

FLOAT = {"weights": "float32", "rates": "squares32"}
FORMATS = {
    "squares8": ("q3.12", "q4.11", "q5.10", "q6.9"),
    "squares6": ("e3m6x0.25", "e3m6x0.5", "e3m6", "e3m6x2", "e3m6x4", "e3m6x8"),
}
STARTS = {"squares8": "q3.12", "squares6": "e3m6"}


def measure(data: DataSet, seeds: int) -> dict[str, Any]:
    """Every format on one set."""
    exact = tuned(lambda rate: learned(data, FLOAT, rate), ALPHAS, data)
    first = auto_choice.first_examples([data.batch])
    assert first is not None
    added, chosen = {}, {}
    for rates, formats in FORMATS.items():
        for weights in formats:
            runs = (learned(data, {"weights": weights, "rates": rates}, exact["rate"], seed) for seed in range(seeds))
            excess = [scored(run.margins, data.batch)["log_loss"] / exact["log_loss"] - 1 for run in runs]
            added[weights] = {"mean": fmean(excess), "standard_error": stdev(excess) / len(excess) ** 0.5}
        spec = Spec(slots=data.slots, weights=STARTS[rates], rates=rates, alpha=exact["rate"])
        chosen[rates] = auto_choice.choose(spec, first, alpha=False, range=True).spec.weights
    control = Learner(Spec(slots=data.slots, alpha=exact["rate"], **FLOAT))
    control.learn(data.batch, trusted=True)
    reach = float(abs(control.model.weights()).max())
    return {"set": data.name, "rate": exact["rate"], "reach": reach, "added": added, "chosen": chosen}


def line(row: dict[str, Any]) -> str:
    cells = [f"{100 * cost['mean']:+.2f} ± {100 * cost['standard_error']:.2f}" for cost in row["added"].values()]
    return "| " + " | ".join([row["set"], f"{row['reach']:.1f}", *cells, ", ".join(row["chosen"].values())]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=list(ALL), metavar="SET", help=", ".join(ALL))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")
    chosen = parser.parse_args()
    if unknown := set(chosen.sets) - ALL.keys():
        parser.error(f"found data set {unknown.pop()!r}, expected {', '.join(ALL)}")
    heads = ["% over float32", "reach", *(weights for formats in FORMATS.values() for weights in formats), "chosen"]
    print("| " + " | ".join(heads) + " |\n| --- |" + " --: |" * (len(heads) - 1))
    rows = []
    for name in chosen.sets:
        with tempfile.TemporaryDirectory() as folder:
            data = ALL[name](Path(folder), None)
        if data is not None:
            rows.append(measure(data, chosen.seeds))
            print(line(rows[-1]), flush=True)
    if chosen.json:
        chosen.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
