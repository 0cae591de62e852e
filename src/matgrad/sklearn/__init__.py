"""Multilayer perceptrons as estimators of scikit-learn."""

from matgrad.foundation.imports import how_to_install

try:
    from matgrad.sklearn.estimators import MLPClassifier, MLPRegressor
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "sklearn":
        raise
    raise ModuleNotFoundError(
        f"matgrad.sklearn needs scikit-learn, which is not installed: {how_to_install('sklearn')}", name=error.name
    ) from None

__all__ = ["MLPClassifier", "MLPRegressor"]
