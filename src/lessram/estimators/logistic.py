"""LogisticRegression: scikit-learn's contract over `Learner`, and nothing else.

A matrix is checked whole before its first row is learned, so a call learns all rows or none. Rows are taken in
their order and numbered over the model's life: `partial_fit` on a matrix equals `partial_fit` on its rows one after
another, byte for byte, and `fit` equals one `partial_fit` a pass if it is given an alpha. Nothing is shuffled.

More than two classes are learned one against the rest, each in a table of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from lessram.data.batch import Batch
from lessram.data.formats import Reading
from lessram.data.matrix import Matrix
from lessram.data.targets import codes_of
from lessram.errors import DataError
from lessram.estimators.class_weights import refuse_balanced, with_class_weights
from lessram.estimators.coefficients import coefficient_row
from lessram.estimators.column_sizes import warn_of_unequal_columns
from lessram.estimators.inputs import advising, checked_classes, checked_matrix, checked_weights
from lessram.estimators.parameters import automatic, passes_of, slots_of, specs_of
from lessram.estimators.row_order import warn_of_sorted_labels
from lessram.learning import auto_choice
from lessram.learning.learner import Learner
from lessram.model.model import Model
from lessram.tables.layout import copied, is_writable

_ANY_NUMBERS: dict[str, Any] = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": False}
"""What scikit-learn is asked of a matrix: `Matrix` converts piece by piece and looks for NaN itself."""


class LogisticRegression(ClassifierMixin, BaseEstimator):
    """Logistic regression learned row by row, in 24 bits a coefficient by default.

    For data that fit in memory call `fit`; for streams, and to go on learning, `partial_fit`. Features should be of
    similar size: binary features, text and counts are fine as they are, measured columns want a scaler before them.
    Rows should come in no particular order; shuffle data that are sorted by label. `fit` warns where either is far off.

    Parameters
    ----------
    n_slots : int, default=None
        Coefficients a table holds; None for one a feature. Features beyond it are hashed into it.
    preset : {"paper"}, default=None
        "paper": the paper's method, q2.13, morris8, plain steps and alpha 0.2, where these are left at their defaults.
    weights : str, default="auto"
        float32, a fixed-point format qN.M of at most 16 bits, e3m6, a minifloat of 10 bits, with squares6, or
        adaptive: a byte for a rare feature, 24 bits for others, with rates by counts. "auto": q3.12, or with squares6
        e3m6; `fit` looks at the first 16,384 rows and takes a wider format of as many bits if they need it, or a
        narrower e3m6x0.5 ... if they leave room.
    codebook : {"standard", "auto"}, default=None
        With adaptive weights, what their bytes stand for: the standard book (None), or one designed from the first
        4,096 rows.
    rates : str, default=None
        How the learning rate falls: with a randomized 8-bit sum of squared gradients a coefficient (squares8; squares6,
        with weights e3m6, shares 16 bits with the weight), with a randomized 8-bit count (morris8, the paper's, or
        ladder8, which is exact for small counts), with exact counts or sums (exact32, squares32, with float32 weights),
        or with the number of rows (global). None: squares8, or what the preset or the weights ask for.
    alpha : float, "auto" or "frozen", default="auto"
        The learning rate's numerator. "auto": `fit` chooses it on the first 16,384 rows; `partial_fit`, which cannot
        look ahead, takes 0.3. Clicks like 0.04 to 0.1, text 0.3 to 1. "frozen": `fit` chooses it for rows in the order
        of time and a model that is to predict later ones as it is: smaller where the world drifts.
    beta : float, default=0.3
        Added to the root of squared gradients in the rate's denominator.
    step : {"plain", "invariant"}, default=None
        Whether large steps end where many small ones would; None for invariant with squared gradients.
    algorithm : {"ogd", "ftrl", "rda"}, default="ogd"
        Steps along the gradient, or FTRL-Proximal or dual averaging, with rates squares8 or squares32.
    l1, l2 : float, default=0
        With ftrl and rda, what a coefficient's size and half its square cost over all rows; l1 leaves exact zeros.
    base : float, default=1.1
        The base of the randomized counters and sums.
    radius : float, default=None
        Coefficients, of features scaled as below, stay in [-radius, radius]; None for all that the format holds.
    fit_intercept : bool, default=True
        Whether to learn a constant term.
    scale : {"rms", "none"}, default="rms"
        Whether values are divided by the running root mean square of all values.
    class_weight : dict or "balanced", default=None
        What a row counts by its class, times its `sample_weight`: {class: weight}, 1 for a class that is not named.
        "balanced": all classes weigh alike in `fit`, total / (classes * total of the class). Of more than two classes,
        each model sees the weights of all rows. Probabilities become those of data with such shares of classes: where
        they should stay true, leave this out and move the threshold.
    passes : int, default=None
        How often `fit` goes over the data. None: once if there are 20,000 rows or more, else as often as it takes to
        learn from so many, at most 100 times. `partial_fit` always learns from each row once.
    random_state : int, RandomState or None, default=0
        Where randomness comes from. Equal numbers give equal models, byte for byte; None gives another model each time.

    Attributes
    ----------
    classes_ : array
        The labels.
    n_features_in_ : int
        Features seen when learning began.
    feature_names_in_ : array of str
        Their names, where X had any.
    n_iter_ : int
        How often the last `fit` went over its data.
    models_ : list of Model
        What was learned: one model for two classes, else one a class. Each can be saved with `lessram.save`.
    intercept_ : array
        The constant term of each model.
    coef_ : sparse array
        A row of coefficients for each model, as they multiply raw feature values; made anew at every look; not there of
        more than 2^26 features that are hashed.

    Examples
    --------
    >>> X, y = [[1, 0], [1, 1], [0, 1], [0, 0]], ["tea", "tea", "coffee", "coffee"]
    >>> clf = LogisticRegression().fit(X, y)
    >>> clf.predict([[1, 0], [0, 1]]).tolist()
    ['tea', 'coffee']
    >>> clf.memory_usage()      # two coefficients of 3 bytes, and four numbers beside the table
    38
    """

    def __init__(
        self,
        *,
        n_slots: int | None = None,
        preset: str | None = None,
        weights: str = "auto",
        codebook: str | None = None,
        rates: str | None = None,
        alpha: float | str = "auto",
        beta: float = 0.3,
        step: str | None = None,
        algorithm: str = "ogd",
        l1: float = 0.0,
        l2: float = 0.0,
        base: float = 1.1,
        radius: float | None = None,
        fit_intercept: bool = True,
        scale: str = "rms",
        class_weight: Mapping[Any, float] | str | None = None,
        passes: int | None = None,
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.n_slots = n_slots
        self.preset = preset
        self.weights = weights
        self.codebook = codebook
        self.rates = rates
        self.alpha = alpha
        self.beta = beta
        self.step = step
        self.algorithm = algorithm
        self.l1, self.l2 = l1, l2
        self.base = base
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.class_weight = class_weight
        self.passes = passes
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> LogisticRegression:
        """Learn from nothing; `passes` times over the rows of X with labels y."""
        with advising(X):
            X, y = validate_data(self, X, y, **_ANY_NUMBERS)
            matrix = checked_matrix(X, slots_of(self))
        check_classification_targets(y)
        classes, codes = np.unique(y, return_inverse=True)
        weights = checked_weights(sample_weight, len(codes))
        weights = with_class_weights(self.class_weight, weights, codes, classes)
        if weights is not None and not weights.any():
            raise DataError("found zero as every sample_weight, expected at least one row to learn from")
        passes = passes_of(self, len(codes))
        self._begin(classes)
        warn_of_sorted_labels(codes, classes)
        if not sp.issparse(X):
            warn_of_unequal_columns(X, getattr(self, "feature_names_in_", None))
        if any(automatic(self).values()):
            self._choose(auto_choice.first_examples(b for _, b in matrix.pieces(weights)), codes, passes)
        self.n_iter_ = passes
        self._learn(matrix, codes, weights, passes)
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> LogisticRegression:
        """Learn from each row of X once, going on from what was learned before.

        The first call needs `classes`, all labels that will ever come. Parameters are read at the first call only, save
        `class_weight`, which must be a dict here.
        """
        refuse_balanced(self.class_weight)
        first = not self.__sklearn_is_fitted__()
        with advising(X):
            X, y = validate_data(self, X, y, reset=first, **_ANY_NUMBERS)
            matrix = checked_matrix(X, slots_of(self) if first else self.models_[0].spec.slots)
        labels = self._classes(classes)
        codes = codes_of(y, labels)
        weights = with_class_weights(self.class_weight, checked_weights(sample_weight, len(codes)), codes, labels)
        if first:
            self._begin(labels)
        self._learn(matrix, codes, weights, passes=1)
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The log-odds of the second class, or of each class against the rest."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.models_) == 1 else margins

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """The probability of each class; for more than two, of each against the rest, made to sum to 1."""
        margins = self._margins(X)
        if len(self.models_) == 1:
            return expit(np.hstack([-margins, margins]))
        return softmax(log_expit(margins), axis=1)

    def predict_log_proba(self, X: Any) -> NDArray[np.float64]:
        """The logarithm of `predict_proba`, exact where probabilities are too small for floating point."""
        margins = self._margins(X)
        if len(self.models_) == 1:
            return log_expit(np.hstack([-margins, margins]))
        return log_softmax(log_expit(margins), axis=1)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely class of each row."""
        margins = self._margins(X)
        best = (margins[:, 0] > 0).astype(np.intp) if len(self.models_) == 1 else margins.argmax(axis=1)
        return self.classes_[best]

    @property
    def intercept_(self) -> NDArray[np.float64]:
        check_is_fitted(self)
        return np.array([model.intercept for model in self.models_])

    @property
    def coef_(self) -> sp.csr_array:
        check_is_fitted(self)
        return sp.vstack([coefficient_row(model, self.n_features_in_) for model in self.models_], format="csr")

    def memory_usage(self) -> int:
        """Bytes of all tables and the numbers beside them: what the estimator keeps in memory."""
        check_is_fitted(self)
        return sum(model.nbytes for model in self.models_)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "models_")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_learners", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if self.__sklearn_is_fitted__():
            self._learners = [Learner(model) for model in self.models_]

    def _classes(self, classes: ArrayLike | None) -> NDArray[Any]:
        """The labels that `partial_fit` may meet: those given at the first call."""
        if classes is None:
            if self.__sklearn_is_fitted__():
                return self.classes_
            raise DataError("classes must be passed on the first call to partial_fit: all labels that will ever come")
        given = checked_classes(classes)
        if self.__sklearn_is_fitted__() and not np.array_equal(given, self.classes_):
            raise DataError(f"found classes {given}, expected {self.classes_}, those of the first call")
        return given

    def _begin(self, classes: NDArray[Any]) -> None:
        """Fresh models, one for two classes, else one a class, with the parameters as they are now."""
        if len(classes) < 2:
            raise DataError(f"found {len(classes)} class in y, expected at least 2: there is nothing to tell apart")
        specs = specs_of(self, 1 if len(classes) == 2 else len(classes))
        reading = msgspec.to_builtins(Reading())  # ids as `lessram train` takes them: such models serve there too
        self.models_ = [dataclasses.replace(Model.new(spec), reader=reading) for spec in specs]
        self._learners = [Learner(model) for model in self.models_]
        self.classes_ = classes

    def _choose(self, first: Batch | None, codes: NDArray[np.intp], passes: int) -> None:
        assert first is not None  # scikit-learn has seen to it that there are rows
        for k, model in enumerate(self.models_):
            seen = first._replace(labels=self._labels(codes[: first.rows], k))
            model.spec = auto_choice.choose(model.spec, seen, passes=passes, **automatic(self)).spec
            self._learners[k] = Learner(model)

    def _labels(self, codes: NDArray[np.intp], k: int) -> NDArray[np.float32]:
        """As the k-th model sees them."""
        return (codes == (1 if len(self.models_) == 1 else k)).astype(np.float32)

    def _learn(self, matrix: Matrix, codes: NDArray[np.intp], weights: NDArray[np.float32] | None, passes: int) -> None:
        self._own_tables()
        for _ in range(passes):
            for rows, batch in matrix.pieces(weights):
                for k, learner in enumerate(self._learners):
                    learner.learn(batch._replace(labels=self._labels(codes[rows], k)), trusted=True)

    def _own_tables(self) -> None:
        """A table that lies in somebody's file (joblib's memory maps) is copied before it is written to."""
        for k, model in enumerate(self.models_):
            if not (is_writable(model.table) and model.scalars.flags.writeable):
                self.models_[k] = dataclasses.replace(model, table=copied(model.table), scalars=np.array(model.scalars))
                self._learners[k] = Learner(self.models_[k])

    def _margins(self, X: Any) -> NDArray[np.float64]:
        check_is_fitted(self)
        with advising(X):
            X = validate_data(self, X, reset=False, **_ANY_NUMBERS)
            matrix = checked_matrix(X, self.models_[0].spec.slots)
        margins = np.empty((matrix.rows, len(self._learners)))
        for rows, batch in matrix.pieces():
            for k, learner in enumerate(self._learners):
                margins[rows, k] = learner.predict(batch, trusted=True)
        return margins
