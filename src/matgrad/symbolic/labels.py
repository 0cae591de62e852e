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
    "Layer": "appendix:layers",
    "Loss": "appendix:loss-functions",
    "Activation": "appendix:activation-functions",
    "Optimizer": "appendix:optimization",
}
_BEYOND_THE_PAPER = (
    "SReLU",
    "AllReLU",
    "TReLU",
    "GELU",
    "SiLU",
    "ELU",
    "Softplus",
    "Adam",
    "LogProbability",
    "BinaryCrossEntropy",
)


def label_of(name: str) -> str:
    """The label of an equation such as 'SoftmaxLayer.DZ' in the paper; empty where the paper does not have it."""
    if name in _LABELS:
        return _LABELS[name]
    kind = name.partition(".")[0]
    if kind.startswith(_BEYOND_THE_PAPER):
        return ""
    sections = [label for ending, label in _SECTIONS.items() if kind.endswith(ending)]
    return sections[0] if sections else "appendix:activation-functions"
