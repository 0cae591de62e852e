"""Multilayer perceptrons as estimators of scikit-learn."""

from matgrad.foundation.imports import check_installed

check_installed("sklearn", "sklearn", "estimators")

from matgrad.sklearn.estimators import MLPClassifier as MLPClassifier  # noqa: E402
from matgrad.sklearn.estimators import MLPRegressor as MLPRegressor  # noqa: E402
