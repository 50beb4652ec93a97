"""A model that learns the first part of a stream and is then frozen: what `--alpha auto` and `--alpha frozen` choose.

    python benchmarks/frozen.py [SET ...] [--json FILE]

Log-loss on the rest of the stream, in its order, for several places to cut it: the alpha that predicts the next example
of the first ones best, the one chosen for a frozen model, and the best of all nine in hindsight. `while learning` is
what the other alpha adds to the progressive loss of the first part.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from accuracy import ALL
from accuracy_systems import chosen
from peer_sets import DataSet
from peers import parsed, parser_of, scored
from rich.console import Console
from rich.table import Table

from lessram import Learner, Spec
from lessram.learning.auto_choice import CANDIDATES

console = Console(width=120)
SHARES = (0.5, 0.6, 0.7, 0.8, 0.9)
QUICK_ROWS = 3_000


def losses(spec: Spec, train: DataSet, test: DataSet) -> tuple[float, float]:
    """While learning, and of the frozen model."""
    learner = Learner(spec)
    progressive = scored(learner.learn(train.batch, trusted=True), train.batch)["log_loss"]
    return progressive, scored(learner.predict(test.batch, trusted=True), test.batch)["log_loss"]


def compare(data: DataSet, share: float) -> dict[str, Any]:
    train, test = data.parts(share)
    auto, frozen = (chosen(train, {}, frozen=frozen)[0] for frozen in (False, True))
    found = {alpha: losses(msgspec.structs.replace(auto, alpha=alpha), train, test) for alpha in CANDIDATES}
    best = min(found, key=lambda alpha: found[alpha][1])
    return {
        "set": data.name,
        "share": share,
        "auto": auto.alpha,
        "frozen": frozen.alpha,
        "best": best,
        "loss": found[auto.alpha][1],
        "frozen_relative": found[frozen.alpha][1] / found[auto.alpha][1] - 1,
        "best_relative": found[best][1] / found[auto.alpha][1] - 1,
        "frozen_while_learning": found[frozen.alpha][0] / found[auto.alpha][0] - 1,
    }


def main() -> None:
    options = parsed(parser_of(__doc__, ALL, QUICK_ROWS), ALL)
    table = Table("set", "learned", "auto", "loss", "frozen", "loss", "while learning", "best", "loss")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.sets:
            data = ALL[name](Path(folder), QUICK_ROWS if options.quick else None)
            for share in SHARES if data else ():
                assert data is not None
                one = compare(data, share)
                found.append(one)
                table.add_row(
                    name,
                    f"{share:.0%}",
                    f"{one['auto']:g}",
                    f"{one['loss']:.4f}",
                    f"{one['frozen']:g}",
                    f"{one['frozen_relative']:+.1%}",
                    f"{one['frozen_while_learning']:+.1%}",
                    f"{one['best']:g}",
                    f"{one['best_relative']:+.1%}",
                )
    console.print(table)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
