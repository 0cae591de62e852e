"""The mutants that torch cannot tell from the original, each with the reason."""

from __future__ import annotations

_BROADCAST = "NumPy broadcasts the scalar; SymPy refuses it"
_BY_ROWS = "softmax does not change when a number is added to a row; the maximum only prevents overflow"
_EVEN = "the derivative has tanh² only"
_ELU = "the two differ for x ≥ 0 only, where the factor beside it is 0"
_SAME_SIGN = "0 < α < 1, so both have the sign of x"
_CENTRED = "Σ_i (x_i - μ)·μ = 0"
_SCALED = "a factor of e^X cancels against its sum"

_SMOOTHED = "(1 - s) * T + s / K if s else T"
_SIGMA = "columns_sum(hadamard(R, R)) / N if training else self.running_variance"
_ROW_SIGMA = "rows_mean(hadamard(R, R))"
_ELU_EXPM1 = "hadamard(exp(negative) + 1, tanh(negative / 2))"
_ELU_GRADIENT = "step(X) + self.alpha * hadamard(exp(negative), 1 - step(X))"
_VIOLATION = "self.margin / 2 + Y / 2 - column_repeat(rows_sum(hadamard(T, Y / 2)), K)"
_JACOBIAN = "identity(D, like=x) - ones(D, like=x) @ stable_softmax(x)"
_MINUS_MAX = "X - column_repeat(rows_max(X), D)"

# (method, expression, expression in its place): why nothing changes
EQUIVALENT: dict[tuple[str, str, str], str] = {
    (
        "LayerWithDropout.dropout_matrix",
        "step(U - p * ones(m, n, like=A)) / (1 - p)",
        "step(U - p) / (1 - p)",
    ): "the same for a dense matrix",
    (
        "LogSoftmaxLayer.backpropagate",
        "DY - hadamard(stable_softmax(Z), column_repeat(rows_sum(DY), K))",
        "DY - hadamard(stable_softmax(Y), column_repeat(rows_sum(DY), K))",
    ): "softmax(log-softmax(Z)) = softmax(Z)",
    ("BatchNormalizationLayer.feedforward", _SIGMA, _SIGMA.replace("(R, R)", "(X, R)")): _CENTRED,
    ("BatchNormalizationLayer.feedforward", _SIGMA, _SIGMA.replace("(R, R)", "(R, X)")): _CENTRED,
    ("LayerNormalizationLayer.feedforward", _ROW_SIGMA, _ROW_SIGMA.replace("(R, R)", "(X, R)")): _CENTRED,
    ("LayerNormalizationLayer.feedforward", _ROW_SIGMA, _ROW_SIGMA.replace("(R, R)", "(R, X)")): _CENTRED,
    (
        "BatchNormalizationLayer.update_statistics",
        "if N == 1",
        "if False",
    ): "torch refuses a batch of one example; the definition is checked for it",
    ("_SmoothedLoss.targets", _SMOOTHED, _SMOOTHED.removesuffix(" if s else T")): "with s = 0 the sum is T",
    ("MultiMarginLoss.gradient", _VIOLATION, f"2 * ({_VIOLATION})"): "only its sign counts",
    ("LeakyReLUActivation.gradient", "step(X - self.alpha * X)", "step(X)"): _SAME_SIGN,
    ("LeakyReLUActivation.gradient", "step(X - self.alpha * X)", "step(X + self.alpha * X)"): _SAME_SIGN,
    ("HyperbolicTangentActivation.gradient", "tanh(X)", "tanh(-X)"): _EVEN,
    ("HyperbolicTangentActivation.gradient", "tanh(X)", "-tanh(X)"): _EVEN,
    ("ELUActivation.__call__", _ELU_EXPM1, _ELU_EXPM1.replace("exp(negative)", "exp(X)")): _ELU,
    ("ELUActivation.gradient", "X - relu(X)", "X"): _ELU,
    ("ELUActivation.gradient", "X - relu(X)", "X + relu(X)"): _ELU,
    (
        "ELUActivation.gradient",
        _ELU_GRADIENT,
        _ELU_GRADIENT.replace("step(X) +", "step(negative) +"),
    ): "min(x, 0) ≥ 0 where x ≥ 0",
    ("ELUActivation.gradient", _ELU_GRADIENT, _ELU_GRADIENT.replace("exp(negative)", "exp(X)")): _ELU,
    (
        "ELUActivation.gradient",
        _ELU_GRADIENT,
        _ELU_GRADIENT.replace("- step(X)", "- step(negative)"),
    ): "min(x, 0) ≥ 0 where x ≥ 0",
    ("softmax_functions.softmax", "exp(X)", "2 * exp(X)"): _SCALED,
    ("softmax_functions.softmax", "exp(X)", "-exp(X)"): _SCALED,
    ("softmax_functions.stable_softmax", "softmax(_minus_rows_max(X))", "softmax(X)"): _BY_ROWS,
    ("softmax_functions.log_softmax_jacobian", _JACOBIAN, "identity(D, like=x) - stable_softmax(x)"): _BROADCAST,
    (
        "softmax_functions.log_softmax_jacobian",
        _JACOBIAN,
        _JACOBIAN.replace("ones(D", "ones(x.shape[0]"),
    ): "NumPy repeats the row; SymPy refuses it",
    ("softmax_functions.stable_log_softmax", "log_softmax(_minus_rows_max(X))", "log_softmax(X)"): _BY_ROWS,
    ("softmax_functions.half_log_softmax", "_minus_rows_max(X / 2)", "X / 2"): _BY_ROWS,
    ("softmax_functions._minus_rows_max", _MINUS_MAX, "X"): _BY_ROWS,
    ("softmax_functions._minus_rows_max", _MINUS_MAX, _MINUS_MAX.replace("X -", "X +")): _BY_ROWS,
    ("softmax_functions._minus_rows_max", _MINUS_MAX, _MINUS_MAX.replace("rows_max", "rows_sum")): _BY_ROWS,
}
