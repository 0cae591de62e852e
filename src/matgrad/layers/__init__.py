"""The layers, of the paper and beyond it: feedforward and backpropagation equations, each on one line."""

from matgrad.layers.batch_normalization import BatchNormalizationLayer
from matgrad.layers.dropout import (
    ActivationDropoutLayer,
    DropoutLayer,
    LinearDropoutLayer,
    LogSoftmaxDropoutLayer,
    SoftmaxDropoutLayer,
    SReLUDropoutLayer,
)
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer, LinearLayer
from matgrad.layers.row_normalization import LayerNormalizationLayer, RMSNormalizationLayer
from matgrad.layers.softmax import LogSoftmaxLayer, SoftmaxLayer
from matgrad.layers.srelu import SReLULayer

__all__ = [
    "ActivationDropoutLayer",
    "ActivationLayer",
    "BatchNormalizationLayer",
    "DropoutLayer",
    "Layer",
    "LayerNormalizationLayer",
    "LinearDropoutLayer",
    "LinearLayer",
    "LogSoftmaxDropoutLayer",
    "LogSoftmaxLayer",
    "RMSNormalizationLayer",
    "SReLUDropoutLayer",
    "SReLULayer",
    "SoftmaxDropoutLayer",
    "SoftmaxLayer",
]
