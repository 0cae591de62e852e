"""Where the paper has an equation: its label, or the name of the section that it stands in."""

from __future__ import annotations

_LABELS = {
    "SoftmaxLayer.DZ": "eq:softmax-layer-backprop1",
    "SoftmaxLayer.DW": "eq:softmax-layer-backprop2",
    "SoftmaxLayer.Db": "eq:softmax-layer-backprop2",
    "SoftmaxLayer.DX": "eq:softmax-layer-backprop2",
    "LinearLayer.DW": "eq:dLdw",
    "LinearLayer.Db": "eq:dLdb",
    "LinearLayer.DX": "eq:dLdx",
    "BatchNormalizationLayer.DX": "eq:batch-normalization-backpropagation",
    "softmax": "eq:softmax-multiple",
    "stable_softmax": "eq:stable-softmax-multiple",
    "softmax_jacobian": "eq:softmax-derivation",
    "log_softmax_jacobian": "eq:log-softmax-derivation",
    "SoftmaxCrossEntropyLoss.gradient": "eq:softmax-cross-entropy-derivation",
    "LogisticCrossEntropyLoss.gradient": "eq:logistic-cross-entropy-loss",
}

_SECTIONS = {
    "appendix:layers": (
        "LinearLayer",
        "ActivationLayer",
        "SoftmaxLayer",
        "LogSoftmaxLayer",
        "BatchNormalizationLayer",
    ),
    "appendix:loss-functions": (
        "SquaredErrorLoss",
        "MeanSquaredErrorLoss",
        "CrossEntropyLoss",
        "SoftmaxCrossEntropyLoss",
        "LogisticCrossEntropyLoss",
        "NegativeLogLikelihoodLoss",
    ),
    "appendix:activation-functions": (
        "ReLUActivation",
        "LeakyReLUActivation",
        "HyperbolicTangentActivation",
        "SigmoidActivation",
        "softmax",
        "stable_softmax",
        "stable_softmax_jacobian",
        "log_softmax",
        "stable_log_softmax",
        "stable_log_softmax_jacobian",
    ),
    "appendix:optimization": ("GradientDescentOptimizer", "MomentumOptimizer", "NesterovOptimizer"),
}


def label_of(name: str) -> str:
    """The label of an equation such as 'SoftmaxLayer.DZ' in the paper; empty where the paper does not have it."""
    if name in _LABELS:
        return _LABELS[name]
    kind = name.partition(".")[0]
    return next((label for label, kinds in _SECTIONS.items() if kind in kinds), "")
