"""Text in a scikit-learn pipeline: words are hashed, learned in 24 bits a coefficient, batch after batch."""

from __future__ import annotations

import random

from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.pipeline import make_pipeline

from lessram import LogisticRegression

SLOTS = 1 << 18
PRAISE = ["wonderful", "moving", "brilliant", "charming", "clever", "tender", "gripping", "funny"]
BLAME = ["dull", "clumsy", "tedious", "shallow", "noisy", "predictable", "lifeless", "awful"]
NEUTRAL = ["the", "film", "story", "actor", "camera", "music", "plot", "ending", "director", "it", "was", "with", "and"]


def write_reviews(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Reviews of twelve words: two in three opinions agree with the verdict."""
    draw = random.Random(seed)
    reviews, verdicts = [], []
    for _ in range(count):
        good = draw.random() < 0.5
        opinions = [draw.choice(PRAISE if good == (draw.random() < 2 / 3) else BLAME) for _ in range(5)]
        words = opinions + draw.choices(NEUTRAL, k=7)
        draw.shuffle(words)
        reviews.append(" ".join(words))
        verdicts.append("good" if good else "bad")
    return reviews, verdicts


def main() -> None:
    reviews, verdicts = write_reviews(4000, seed=1)
    unseen, truth = write_reviews(1000, seed=2)
    classifier = LogisticRegression(n_slots=SLOTS, random_state=0)  # nothing to tune
    vectorizer = HashingVectorizer(n_features=SLOTS)

    model = make_pipeline(vectorizer, classifier).fit(reviews, verdicts)
    print(f"accuracy on unseen reviews: {model.score(unseen, truth):.3f}")
    for review in ("a wonderful story with a gripping ending", "dull plot and a lifeless character"):
        print(f"{model.predict_proba([review])[0][1]:.2f} good: {review}")

    # The same as a stream, without holding all reviews at once.
    streaming = clone(classifier)
    for start in range(0, len(reviews), 500):
        part = slice(start, start + 500)
        streaming.partial_fit(vectorizer.transform(reviews[part]), verdicts[part], classes=["bad", "good"])
    print(f"accuracy after one pass in batches: {streaming.score(vectorizer.transform(unseen), truth):.3f}")
    print(f"{streaming.memory_usage():,} bytes for {SLOTS:,} coefficients")


if __name__ == "__main__":
    main()
