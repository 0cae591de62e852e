"""The layers, of the paper and beyond it: feedforward and backpropagation equations, each on one line."""

from matgrad.layers.dropout import ActivationDropoutLayer as ActivationDropoutLayer
from matgrad.layers.dropout import DropoutLayer as DropoutLayer
from matgrad.layers.dropout import LinearDropoutLayer as LinearDropoutLayer
from matgrad.layers.dropout import LogSoftmaxDropoutLayer as LogSoftmaxDropoutLayer
from matgrad.layers.dropout import SoftmaxDropoutLayer as SoftmaxDropoutLayer
from matgrad.layers.dropout import SReLUDropoutLayer as SReLUDropoutLayer
from matgrad.layers.layer import Layer as Layer
from matgrad.layers.linear import ActivationLayer as ActivationLayer
from matgrad.layers.linear import LinearLayer as LinearLayer
from matgrad.layers.linear import LogSoftmaxLayer as LogSoftmaxLayer
from matgrad.layers.linear import SoftmaxLayer as SoftmaxLayer
from matgrad.layers.normalization import BatchNormalizationLayer as BatchNormalizationLayer
from matgrad.layers.normalization import LayerNormalizationLayer as LayerNormalizationLayer
from matgrad.layers.normalization import RMSNormalizationLayer as RMSNormalizationLayer
from matgrad.layers.srelu import SReLULayer as SReLULayer
