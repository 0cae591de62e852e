"""matgrad: multilayer perceptrons in batch matrix form, from one source of equations."""

from matgrad import distributed
from matgrad.activation_functions import (
    ActivationFunction,
    AllReLUActivation,
    ELUActivation,
    GELUActivation,
    HyperbolicTangentActivation,
    LeakyReLUActivation,
    ReLUActivation,
    SigmoidActivation,
    SiLUActivation,
    SoftplusActivation,
    SReLUActivation,
    TReLUActivation,
)
from matgrad.callbacks import GMP, SET, SNIP, Callback, Checkpoints, EarlyStopping, RigL, Topology
from matgrad.datasets import DataLoader, load_digits, one_hot
from matgrad.derivation import Derivation, derive
from matgrad.engines.engine import compile_step
from matgrad.evaluation.measures import compute_accuracy, compute_loss
from matgrad.exchange import from_keras, from_onnx, from_torch, to_keras, to_onnx, to_torch
from matgrad.explanation.explanation import Explanation, explain
from matgrad.foundation.numbers import manual_seed
from matgrad.inspection.gradient_check import check_gradients
from matgrad.inspection.profiling import Profile, profile
from matgrad.layers import (
    ActivationDropoutLayer,
    ActivationLayer,
    BatchNormalizationLayer,
    DropoutLayer,
    Layer,
    LayerNormalizationLayer,
    LinearDropoutLayer,
    LinearLayer,
    LogSoftmaxDropoutLayer,
    LogSoftmaxLayer,
    RMSNormalizationLayer,
    SoftmaxDropoutLayer,
    SoftmaxLayer,
    SReLUDropoutLayer,
    SReLULayer,
)
from matgrad.learning_rate import (
    ConstantScheduler,
    CosineScheduler,
    ExponentialScheduler,
    LearningRateScheduler,
    MultiStepLRScheduler,
    StepBasedScheduler,
    TimeBasedScheduler,
    WarmUpScheduler,
)
from matgrad.loss_functions import (
    BinaryCrossEntropyLoss,
    CrossEntropyLoss,
    HingeLoss,
    HuberLoss,
    LogisticCrossEntropyLoss,
    LogProbabilityLoss,
    LossFunction,
    MeanSquaredErrorLoss,
    MultiMarginLoss,
    NegativeLogLikelihoodLoss,
    SoftmaxCrossEntropyLoss,
    SquaredErrorLoss,
)
from matgrad.multilayer_perceptron import MultilayerPerceptron
from matgrad.optimizers import (
    AdagradOptimizer,
    AdamOptimizer,
    AdamWOptimizer,
    CompositeOptimizer,
    GradientDescentOptimizer,
    MomentumOptimizer,
    NesterovOptimizer,
    Optimizer,
    RMSPropOptimizer,
)
from matgrad.program.computations import clip_gradients, make_step
from matgrad.sparse.growing import Grow
from matgrad.sparse.matrix import SparseMatrix
from matgrad.sparse.pruning import Prune
from matgrad.sparse.support import Support
from matgrad.specifications.models import create_model
from matgrad.specifications.plugins import load_plugin
from matgrad.storage.models import load, load_weights
from matgrad.training import stochastic_gradient_descent

__version__ = "0.4.0"

__all__ = [
    "GMP",
    "SET",
    "SNIP",
    "ActivationDropoutLayer",
    "ActivationFunction",
    "ActivationLayer",
    "AdagradOptimizer",
    "AdamOptimizer",
    "AdamWOptimizer",
    "AllReLUActivation",
    "BatchNormalizationLayer",
    "BinaryCrossEntropyLoss",
    "Callback",
    "Checkpoints",
    "CompositeOptimizer",
    "ConstantScheduler",
    "CosineScheduler",
    "CrossEntropyLoss",
    "DataLoader",
    "Derivation",
    "DropoutLayer",
    "ELUActivation",
    "EarlyStopping",
    "Explanation",
    "ExponentialScheduler",
    "GELUActivation",
    "GradientDescentOptimizer",
    "Grow",
    "HingeLoss",
    "HuberLoss",
    "HyperbolicTangentActivation",
    "Layer",
    "LayerNormalizationLayer",
    "LeakyReLUActivation",
    "LearningRateScheduler",
    "LinearDropoutLayer",
    "LinearLayer",
    "LogProbabilityLoss",
    "LogSoftmaxDropoutLayer",
    "LogSoftmaxLayer",
    "LogisticCrossEntropyLoss",
    "LossFunction",
    "MeanSquaredErrorLoss",
    "MomentumOptimizer",
    "MultiMarginLoss",
    "MultiStepLRScheduler",
    "MultilayerPerceptron",
    "NegativeLogLikelihoodLoss",
    "NesterovOptimizer",
    "Optimizer",
    "Profile",
    "Prune",
    "RMSNormalizationLayer",
    "RMSPropOptimizer",
    "ReLUActivation",
    "RigL",
    "SReLUActivation",
    "SReLUDropoutLayer",
    "SReLULayer",
    "SiLUActivation",
    "SigmoidActivation",
    "SoftmaxCrossEntropyLoss",
    "SoftmaxDropoutLayer",
    "SoftmaxLayer",
    "SoftplusActivation",
    "SparseMatrix",
    "SquaredErrorLoss",
    "StepBasedScheduler",
    "Support",
    "TReLUActivation",
    "TimeBasedScheduler",
    "Topology",
    "WarmUpScheduler",
    "check_gradients",
    "clip_gradients",
    "compile_step",
    "compute_accuracy",
    "compute_loss",
    "create_model",
    "derive",
    "distributed",
    "explain",
    "from_keras",
    "from_onnx",
    "from_torch",
    "load",
    "load_digits",
    "load_plugin",
    "load_weights",
    "make_step",
    "manual_seed",
    "one_hot",
    "profile",
    "stochastic_gradient_descent",
    "to_keras",
    "to_onnx",
    "to_torch",
]
