"""Learn from a file that need not fit in memory: read_batches + Learner, one batch at a time."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

from lessram import Learner, Spec, load, read_batches
from lessram.learning.metrics import Scores
from lessram.numerics.loss import Loss

SLOTS = 1 << 16


def write_clicks(path: Path, rows: int = 20_000) -> None:
    """Clicks in svmlight form: some of the 50 advertisements are liked, some of the 1,000 sites are visited."""
    draw = random.Random(1)
    liked = [draw.random() for _ in range(50)]
    with path.open("w") as file:
        for _ in range(rows):
            advertisement, site = draw.randrange(50), draw.randrange(1000)
            clicked = draw.random() < liked[advertisement]
            file.write(f"{int(clicked)} {advertisement}:1 {1000 + site}:1\n")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data, saved = Path(folder) / "clicks.svm", Path(folder) / "clicks.lessram"
        write_clicks(data)

        learner, scores = Learner(Spec(slots=SLOTS, alpha=0.3)), Scores.new()
        reader = read_batches([str(data)], slots=SLOTS)
        for batch, _position in reader:
            margins = learner.learn(batch, trusted=True)  # log-odds, predicted before the labels were looked at
            scores.add(margins, batch, Loss.logistic)
        model = learner.model
        model.save(saved)

        print(f"{scores.examples:,} examples, {reader.report.skipped} lines skipped")
        print(f"log-loss {scores.log_loss:.4f}, error rate {scores.error_rate:.3f}, AUC {scores.auc:.3f}")
        print(f"{8 * model.nbytes / SLOTS:.1f} bits a coefficient in memory, {saved.stat().st_size:,} bytes on disk")
        print(f"loaded again: {load(str(saved)).examples:,} examples")


if __name__ == "__main__":
    main()
