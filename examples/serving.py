"""From training to serving: learn clicks by name, round and code the model, predict from the file as it lies there."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

from lessram import Learner, Predictor, Spec
from lessram.data.matrix import Matrix
from lessram.serving.planner import Wish, compress

SLOTS = 1 << 18
Row = dict[str, Any]


def draw_clicks(rows: int, seed: int) -> tuple[list[Row], list[int]]:
    """Advertisements on sites, clicked as often as people like them; users hardly ever come back."""
    taste, draw = random.Random(1), random.Random(seed)
    liked = [taste.random() for _ in range(50)]
    features: list[Row] = []
    clicks = []
    for _ in range(rows):
        advertisement = draw.randrange(len(liked))
        features.append(
            {"ad": f"a{advertisement}", "site": f"s{draw.randrange(500)}", "user": f"u{draw.getrandbits(20)}"}
        )
        clicks.append(int(draw.random() < liked[advertisement]))
    return features, clicks


def main() -> None:
    features, clicks = draw_clicks(20_000, seed=2)
    later, later_clicks = draw_clicks(5_000, seed=3)

    learner = Learner(Spec(slots=SLOTS, alpha=0.1))
    for batch in Matrix(features, SLOTS).batches(clicks):
        learner.learn(batch)
    model = learner.model
    model.reader = {"hash": "auto"}  # how names became slots: whoever predicts does the same

    holdout = Matrix(later, SLOTS).batches(later_clicks)
    made = compress(model, Wish(max_loss=0.001), holdout)
    trained, served = model.table_bytes, made.served.store.nbytes
    print(f"{made.chosen.survey.grid}: {made.why}")
    print(f"trained {trained:,} bytes, served {served:,}: {8 * served / SLOTS:.2f} bits a coefficient")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "clicks.served"
        made.served.save(path)
        predictor = Predictor.open(path)
        for row, probability in zip(later, predictor.probabilities(later[:3]), strict=False):
            print(f"{probability:.3f} {row}")


if __name__ == "__main__":
    main()
