"""scikit-learn's contract over `Learner`, and nothing else."""

from lessram.estimators.logistic import LogisticRegression

__all__ = ["LogisticRegression"]
