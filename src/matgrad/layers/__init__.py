"""The layers of the paper: feedforward and backpropagation equations, each on one line."""

from matgrad.layers.batch_normalization import BatchNormalizationLayer
from matgrad.layers.dropout import DropoutLayer
from matgrad.layers.layer import Layer
from matgrad.layers.linear import ActivationLayer, LinearLayer
from matgrad.layers.softmax import LogSoftmaxLayer, SoftmaxLayer
from matgrad.layers.srelu import SReLULayer

__all__ = [
    "ActivationLayer",
    "BatchNormalizationLayer",
    "DropoutLayer",
    "Layer",
    "LinearLayer",
    "LogSoftmaxLayer",
    "SReLULayer",
    "SoftmaxLayer",
]
